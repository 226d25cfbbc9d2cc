// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/** Elements that are combined as floats. */
class FloatBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(float[].class);

  /** The block, and the source that it is combined with. */
  final float[] a = new float[LENGTH];

  final float[] b = new float[LENGTH];

  @Override
  void load(long address, int count) {
    copyIn(a, BASE, address, (long) count * Float.BYTES);
  }

  void loadSource(long address, int count) {
    copyIn(b, BASE, address, (long) count * Float.BYTES);
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
    for (int i = 0; i < count; i++) {
      a[i] /= divisor;
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(a, BASE, address, (long) count * Float.BYTES);
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
