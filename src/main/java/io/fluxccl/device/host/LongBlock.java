package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/**
 * Integers of 64 bits. Unsigned ones are compared with their highest bit turned over, which puts
 * them in the order of signed ones.
 */
final class LongBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(long[].class);

  private final boolean signed;
  private final long[] result = new long[LENGTH];
  private final long[] source = new long[LENGTH];

  LongBlock(boolean signed) {
    this.signed = signed;
  }

  @Override
  void load(long address, int count) {
    copyIn(result, BASE, address, (long) count * Long.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(source, BASE, address, (long) count * Long.BYTES);
    long flip = signed ? 0 : Long.MIN_VALUE;
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
      result[i] = signed ? result[i] / divisor : Long.divideUnsigned(result[i], divisor);
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(result, BASE, address, (long) count * Long.BYTES);
  }

  private static void add(long[] a, long[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] += b[i];
    }
  }

  private static void multiply(long[] a, long[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] *= b[i];
    }
  }

  private static void min(long[] a, long[] b, long flip, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.min(a[i] ^ flip, b[i] ^ flip) ^ flip;
    }
  }

  private static void max(long[] a, long[] b, long flip, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.max(a[i] ^ flip, b[i] ^ flip) ^ flip;
    }
  }
}
