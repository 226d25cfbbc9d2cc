package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/**
 * Integers of 32 bits. Unsigned ones are compared with their highest bit turned over, which puts
 * them in the order of signed ones.
 */
final class IntBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(int[].class);

  private final boolean signed;
  private final int[] result = new int[LENGTH];
  private final int[] source = new int[LENGTH];

  IntBlock(boolean signed) {
    this.signed = signed;
  }

  @Override
  void load(long address, int count) {
    copyIn(result, BASE, address, (long) count * Integer.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(source, BASE, address, (long) count * Integer.BYTES);
    int flip = signed ? 0 : Integer.MIN_VALUE;
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
      result[i] = signed ? result[i] / divisor : Integer.divideUnsigned(result[i], divisor);
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(result, BASE, address, (long) count * Integer.BYTES);
  }

  private static void add(int[] a, int[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] += b[i];
    }
  }

  private static void multiply(int[] a, int[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] *= b[i];
    }
  }

  private static void min(int[] a, int[] b, int flip, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.min(a[i] ^ flip, b[i] ^ flip) ^ flip;
    }
  }

  private static void max(int[] a, int[] b, int flip, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.max(a[i] ^ flip, b[i] ^ flip) ^ flip;
    }
  }
}
