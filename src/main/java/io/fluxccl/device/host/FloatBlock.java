// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;

/** Elements that are combined as floats. */
class FloatBlock extends ReductionBlock<float[]> {
  FloatBlock() {
    super(float[]::new, Float.BYTES);
  }

  @Override
  final void combine(ReduceOp op, long address, int count) {
    loadSource(address, count);
    switch (op) {
      case PROD -> multiply(a, b, count);
      case MIN -> minInto(a, b, count);
      case MAX -> maxInto(a, b, count);
      default -> add(a, b, count);
    }
  }

  @Override
  final void divide(int divisor, int count) {
    float[] values = a;
    for (int i = 0; i < count; i++) {
      values[i] /= divisor;
    }
  }

  private static void add(float[] to, float[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] += from[i];
    }
  }

  private static void multiply(float[] to, float[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] *= from[i];
    }
  }

  private static void minInto(float[] to, float[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.min(to[i], from[i]);
    }
  }

  private static void maxInto(float[] to, float[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.max(to[i], from[i]);
    }
  }
}
