// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;

/** Integers of 32 bits. */
final class IntBlock extends ReductionBlock<int[]> {
  /** The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones. */
  private final int flip;

  IntBlock(boolean signed) {
    super(int[]::new, Integer.BYTES);
    flip = signed ? 0 : Integer.MIN_VALUE;
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
      a[i] = flip == 0 ? a[i] / divisor : Integer.divideUnsigned(a[i], divisor);
    }
  }

  private static void add(int[] to, int[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] += from[i];
    }
  }

  private static void multiply(int[] to, int[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] *= from[i];
    }
  }

  private static void minInto(int[] to, int[] from, int flip, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.min(to[i] ^ flip, from[i] ^ flip) ^ flip;
    }
  }
}
