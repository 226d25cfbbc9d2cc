package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/**
 * Integers of 8 bits. Unsigned ones are compared with their highest bit turned over, which puts
 * them in the order of signed ones.
 */
final class ByteBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(byte[].class);

  private final boolean signed;
  private final byte[] result = new byte[LENGTH];
  private final byte[] source = new byte[LENGTH];

  ByteBlock(boolean signed) {
    this.signed = signed;
  }

  @Override
  void load(long address, int count) {
    copyIn(result, BASE, address, (long) count * Byte.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(source, BASE, address, (long) count * Byte.BYTES);
    byte flip = signed ? 0 : Byte.MIN_VALUE;
    switch (op) {
      case PROD:
        multiply(result, source, count);
        break;
      case MIN:
        min(result, source, flip, count);
        break;
      case MAX:
        max(result, source, flip, count);
        break;
      default:
        add(result, source, count);
    }
  }

  @Override
  void divide(int divisor, int count) {
    for (int i = 0; i < count; i++) {
      result[i] = (byte) ((signed ? result[i] : result[i] & 0xff) / divisor);
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(result, BASE, address, (long) count * Byte.BYTES);
  }

  private static void add(byte[] a, byte[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] += b[i];
    }
  }

  private static void multiply(byte[] a, byte[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] *= b[i];
    }
  }

  private static void min(byte[] a, byte[] b, byte flip, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = (byte) (Math.min(a[i] ^ flip, b[i] ^ flip) ^ flip);
    }
  }

  private static void max(byte[] a, byte[] b, byte flip, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = (byte) (Math.max(a[i] ^ flip, b[i] ^ flip) ^ flip);
    }
  }
}
