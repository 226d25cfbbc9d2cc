// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/** Integers of 32 bits. */
final class IntBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(int[].class);

  private final int[] a = new int[LENGTH];
  private final int[] b = new int[LENGTH];

  /** The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones. */
  private final int flip;

  IntBlock(boolean signed) {
    flip = signed ? 0 : Integer.MIN_VALUE;
  }

  @Override
  void load(long address, int count) {
    copyIn(a, BASE, address, (long) count * Integer.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(b, BASE, address, (long) count * Integer.BYTES);
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
      a[i] = flip == 0 ? a[i] / divisor : Integer.divideUnsigned(a[i], divisor);
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(a, BASE, address, (long) count * Integer.BYTES);
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

  private static void maxInto(int[] to, int[] from, int flip, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = Math.max(to[i] ^ flip, from[i] ^ flip) ^ flip;
    }
  }
}
