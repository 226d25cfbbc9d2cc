package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/** Elements of type double. */
final class DoubleBlock extends ReductionBlock {
  private static final long BASE = UnsafeApi.arrayBaseOffset(double[].class);

  private final double[] result = new double[LENGTH];
  private final double[] source = new double[LENGTH];

  @Override
  void load(long address, int count) {
    copyIn(result, BASE, address, (long) count * Double.BYTES);
  }

  @Override
  void combine(ReduceOp op, long address, int count) {
    copyIn(source, BASE, address, (long) count * Double.BYTES);
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
    copyOut(result, BASE, address, (long) count * Double.BYTES);
  }

  static void add(double[] a, double[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] += b[i];
    }
  }

  static void multiply(double[] a, double[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] *= b[i];
    }
  }

  static void min(double[] a, double[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.min(a[i], b[i]);
    }
  }

  static void max(double[] a, double[] b, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.max(a[i], b[i]);
    }
  }
}
