package io.fluxccl.device.host;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/**
 * A block of elements that one thread reduces in arrays. Memory is copied in and out in bulk, so
 * that the JIT compiler turns the loops over arrays into vector code.
 */
abstract class ReductionBlock {
  /** The most elements of a block: results and one source stay in the first-level cache. */
  static final int LENGTH = 2048;

  static ReductionBlock of(DataType type) {
    return switch (type) {
      case INT8 -> new IntegerBlocks.ByteBlock(true);
      case UINT8 -> new IntegerBlocks.ByteBlock(false);
      case INT32 -> new IntegerBlocks.IntBlock(true);
      case UINT32 -> new IntegerBlocks.IntBlock(false);
      case INT64 -> new IntegerBlocks.LongBlock(true);
      case UINT64 -> new IntegerBlocks.LongBlock(false);
      case FLOAT16 -> new HalfBlock.Float16();
      case BFLOAT16 -> new HalfBlock.Bfloat16();
      case FLOAT8_E4M3 -> new Float8Block(Float8.E4M3);
      case FLOAT8_E5M2 -> new Float8Block(Float8.E5M2);
      case FLOAT32 -> new FloatBlock();
      case FLOAT64 -> new DoubleBlock();
    };
  }

  /** Loads the first source's elements from an address. */
  abstract void load(long address, int count);

  /** Combines the block with the elements at an address; AVG adds. */
  abstract void combine(ReduceOp op, long address, int count);

  /** Divides each element of the block. */
  abstract void divide(int divisor, int count);

  /** Writes the block to an address and keeps it. */
  abstract void store(long address, int count);

  static void copyIn(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(null, address, array, baseOffset, bytes);
  }

  static void copyOut(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(array, baseOffset, null, address, bytes);
  }

  /** A block whose arrays hold the elements as they are in memory. */
  abstract static class ArrayBlock extends ReductionBlock {
    private final Object results;
    private final Object sources;
    private final long base;
    private final long elementSize;

    ArrayBlock(Object results, Object sources, int elementSize) {
      this.results = results;
      this.sources = sources;
      this.base = UnsafeApi.arrayBaseOffset(results.getClass());
      this.elementSize = elementSize;
    }

    @Override
    void load(long address, int count) {
      copyIn(results, base, address, count * elementSize);
    }

    void loadSource(long address, int count) {
      copyIn(sources, base, address, count * elementSize);
    }

    @Override
    final void combine(ReduceOp op, long address, int count) {
      loadSource(address, count);
      switch (op) {
        case PROD -> multiply(count);
        case MIN -> min(count);
        case MAX -> max(count);
        default -> add(count);
      }
    }

    abstract void add(int count);

    abstract void multiply(int count);

    abstract void min(int count);

    abstract void max(int count);

    @Override
    void store(long address, int count) {
      copyOut(results, base, address, count * elementSize);
    }
  }

  // The loops run over local copies of the fields, so that they become vector code.

  /** Elements that are combined as floats. */
  static class FloatBlock extends ArrayBlock {
    final float[] a;
    final float[] b;

    private FloatBlock(float[] a, float[] b) {
      super(a, b, Float.BYTES);
      this.a = a;
      this.b = b;
    }

    FloatBlock() {
      this(new float[LENGTH], new float[LENGTH]);
    }

    @Override
    void add(int count) {
      float[] to = a;
      float[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(int count) {
      float[] to = a;
      float[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void min(int count) {
      float[] to = a;
      float[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] = Math.min(to[i], from[i]);
      }
    }

    @Override
    void max(int count) {
      float[] to = a;
      float[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] = Math.max(to[i], from[i]);
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = a[i] / divisor;
      }
    }
  }

  /** Doubles. */
  private static final class DoubleBlock extends ArrayBlock {
    final double[] a;
    final double[] b;

    private DoubleBlock(double[] a, double[] b) {
      super(a, b, Double.BYTES);
      this.a = a;
      this.b = b;
    }

    DoubleBlock() {
      this(new double[LENGTH], new double[LENGTH]);
    }

    @Override
    void add(int count) {
      double[] to = a;
      double[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(int count) {
      double[] to = a;
      double[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void min(int count) {
      double[] to = a;
      double[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] = Math.min(to[i], from[i]);
      }
    }

    @Override
    void max(int count) {
      double[] to = a;
      double[] from = b;
      for (int i = 0; i < count; i++) {
        to[i] = Math.max(to[i], from[i]);
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = a[i] / divisor;
      }
    }
  }
}
