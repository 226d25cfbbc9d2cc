// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/** Doubles. */
final class DoubleBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(double[].class);

  private final double[] a = new double[LENGTH];
  private final double[] b = new double[LENGTH];

  @Override
  void load(long address, int count) {
    copyIn(a, BASE, address, (long) count * Double.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(b, BASE, address, (long) count * Double.BYTES);
    switch (op) {
      case PROD -> multiply(a, b, count);
      case MIN -> minInto(a, b, count);
      case MAX -> maxInto(a, b, count);
      default -> add(a, b, count);
    }
  }

  @Override
  void divide(int divisor, int count) {
    for (int i = 0; i < count; i++) {
      a[i] /= divisor;
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(a, BASE, address, (long) count * Double.BYTES);
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
