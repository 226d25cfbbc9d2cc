// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;

/** Doubles. */
final class DoubleBlock extends ReductionBlock<double[]> {
  DoubleBlock() {
    super(double[]::new, Double.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    loadSource(address, count);
    switch (op) {
      case PROD -> multiply(a, b, count);
      case MIN -> minInto(a, b, count);
      case MAX -> maxInto(a, b, count);
      default -> add(a, b, count);
    }
  }

  @Override
  void divide(int divisor, int count) {
    double[] values = a;
    for (int i = 0; i < count; i++) {
      values[i] /= divisor;
    }
  }

  private static void add(double[] to, double[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] += from[i];
    }
  }

  private static void multiply(double[] to, double[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] *= from[i];
    }
  }

  private static void minInto(double[] to, double[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.min(to[i], from[i]);
    }
  }

  private static void maxInto(double[] to, double[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.max(to[i], from[i]);
    }
  }
}
