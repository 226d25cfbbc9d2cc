package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/** Elements of type float. */
final class FloatBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(float[].class);

  private final float[] result = new float[LENGTH];
  private final float[] source = new float[LENGTH];

  @Override
  void load(long address, int count) {
    copyIn(result, BASE, address, (long) count * Float.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(source, BASE, address, (long) count * Float.BYTES);
    switch (op) {
      case PROD:
        multiply(result, source, count);
        break;
      case MIN:
        min(result, source, count);
        break;
      case MAX:
        max(result, source, count);
        break;
      default:
        add(result, source, count);
    }
  }

  @Override
  void divide(int divisor, int count) {
    for (int i = 0; i < count; i++) {
      result[i] /= divisor;
    }
  }

  @Override
  void store(long address, int count) {
    copyOut(result, BASE, address, (long) count * Float.BYTES);
  }

  static void add(float[] a, float[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] += b[i];
    }
  }

  static void multiply(float[] a, float[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] *= b[i];
    }
  }

  static void min(float[] a, float[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.min(a[i], b[i]);
    }
  }

  static void max(float[] a, float[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.max(a[i], b[i]);
    }
  }
}
