// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;

/** Integers of 8 bits. */
final class ByteBlock extends ReductionBlock<byte[]> {
  /** The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones. */
  private final int flip;

  ByteBlock(boolean signed) {
    super(byte[]::new, Byte.BYTES);
    flip = signed ? 0 : Byte.MIN_VALUE;
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
      a[i] = (byte) ((flip == 0 ? a[i] : a[i] & 0xff) / divisor);
    }
  }

  private static void add(byte[] to, byte[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] += from[i];
    }
  }

  private static void multiply(byte[] to, byte[] from, int count) {
    for (int i = 0; i < count; i++) {
      to[i] *= from[i];
    }
  }

  private static void minInto(byte[] to, byte[] from, int flip, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = (byte) (Math.min(to[i] ^ flip, from[i] ^ flip) ^ flip);
    }
  }
}
