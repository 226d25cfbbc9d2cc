// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/** Integers of 64 bits. */
final class LongBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(long[].class);

  private final long[] a = new long[LENGTH];
  private final long[] b = new long[LENGTH];

  /** The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones. */
  private final long flip;

  LongBlock(boolean signed) {
    flip = signed ? 0 : Long.MIN_VALUE;
  }

  @Override
  void load(long address, int count) {
    copyIn(a, BASE, address, (long) count * Long.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(b, BASE, address, (long) count * Long.BYTES);
    switch (op) {
      case PROD -> multiply(a, b, count);
      case MIN -> minInto(a, b, flip, count);
      case MAX -> maxInto(a, b, flip, count);
      default -> add(a, b, count);
    }
  }

  @Override
  void divide(int divisor, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = flip == 0 ? a[i] / divisor : Long.divideUnsigned(a[i], divisor);
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(a, BASE, address, (long) count * Long.BYTES);
  }

  private static void add(long[] to, long[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] += from[i];
    }
  }

  private static void multiply(long[] to, long[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] *= from[i];
    }
  }

  private static void minInto(long[] to, long[] from, long flip, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.min(to[i] ^ flip, from[i] ^ flip) ^ flip;
    }
  }

  private static void maxInto(long[] to, long[] from, long flip, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.max(to[i] ^ flip, from[i] ^ flip) ^ flip;
    }
  }
}
