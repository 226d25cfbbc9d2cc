// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;

/** Integers of 64 bits. */
final class LongBlock extends ReductionBlock<long[]> {
  /** The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones. */
  private final long flip;

  LongBlock(boolean signed) {
    super(long[]::new, Long.BYTES);
    flip = signed ? 0 : Long.MIN_VALUE;
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    loadSource(address, count);
    switch (op) {
      case PROD -> multiply(a, b, count);
      case MIN -> minInto(a, b, flip, count);
      case MAX -> minInto(a, b, ~flip, count); // inverted, the largest is the least
      default -> add(a, b, count);
    }
  }

  @Override
  void divide(int divisor, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = flip == 0 ? a[i] / divisor : Long.divideUnsigned(a[i], divisor);
    }
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
}
