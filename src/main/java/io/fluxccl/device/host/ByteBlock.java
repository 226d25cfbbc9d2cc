// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/** Integers of 8 bits. */
final class ByteBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(byte[].class);

  private final byte[] a = new byte[LENGTH];
  private final byte[] b = new byte[LENGTH];

  /** The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones. */
  private final int flip;

  ByteBlock(boolean signed) {
    flip = signed ? 0 : Byte.MIN_VALUE;
  }

  @Override
  void load(long address, int count) {
    copyIn(a, BASE, address, (long) count * Byte.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(b, BASE, address, (long) count * Byte.BYTES);
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
      a[i] = (byte) ((flip == 0 ? a[i] : a[i] & 0xff) / divisor);
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(a, BASE, address, (long) count * Byte.BYTES);
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

  private static void maxInto(byte[] to, byte[] from, int flip, int count) {
    for (int i = 0; i < count; i++) {
      to[i] = (byte) (Math.max(to[i] ^ flip, from[i] ^ flip) ^ flip);
    }
  }
}
