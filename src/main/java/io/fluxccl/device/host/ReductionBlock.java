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
      case INT8 -> new ByteBlock(true);
      case UINT8 -> new ByteBlock(false);
      case INT32 -> new IntBlock(true);
      case UINT32 -> new IntBlock(false);
      case INT64 -> new LongBlock(true);
      case UINT64 -> new LongBlock(false);
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

  /**
   * A block whose arrays hold the elements as they are in memory.
   *
   * @param <A> the arrays
   */
  abstract static class ArrayBlock<A> extends ReductionBlock {
    /** The block, and the source that it is combined with. */
    final A a;

    final A b;
    private final long base;
    private final long elementSize;

    ArrayBlock(A a, A b, int elementSize) {
      this.a = a;
      this.b = b;
      this.base = UnsafeApi.arrayBaseOffset(a.getClass());
      this.elementSize = elementSize;
    }

    @Override
    void load(long address, int count) {
      copyIn(a, base, address, count * elementSize);
    }

    void loadSource(long address, int count) {
      copyIn(b, base, address, count * elementSize);
    }

    @Override
    final void combine(ReduceOp op, long address, int count) {
      loadSource(address, count);
      switch (op) {
        case PROD -> multiply(a, b, count);
        case MIN, MAX -> choose(a, b, op == ReduceOp.MIN, count);
        default -> add(a, b, count);
      }
    }

    // The loops run over parameters, not fields, so that they become vector code.

    abstract void add(A to, A from, int count);

    abstract void multiply(A to, A from, int count);

    /** Keeps the lesser of two elements, or the greater. */
    abstract void choose(A to, A from, boolean lesser, int count);

    @Override
    void store(long address, int count) {
      copyOut(a, base, address, count * elementSize);
    }
  }

  /** Elements that are combined as floats. */
  static class FloatBlock extends ArrayBlock<float[]> {
    FloatBlock() {
      super(new float[LENGTH], new float[LENGTH], Float.BYTES);
    }

    @Override
    void add(float[] to, float[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(float[] to, float[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void choose(float[] to, float[] from, boolean lesser, int count) {
      if (lesser) {
        for (int i = 0; i < count; i++) {
          to[i] = Math.min(to[i], from[i]);
        }
      } else {
        for (int i = 0; i < count; i++) {
          to[i] = Math.max(to[i], from[i]);
        }
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] /= divisor;
      }
    }
  }

  /** Doubles. */
  private static final class DoubleBlock extends ArrayBlock<double[]> {
    DoubleBlock() {
      super(new double[LENGTH], new double[LENGTH], Double.BYTES);
    }

    @Override
    void add(double[] to, double[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(double[] to, double[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void choose(double[] to, double[] from, boolean lesser, int count) {
      if (lesser) {
        for (int i = 0; i < count; i++) {
          to[i] = Math.min(to[i], from[i]);
        }
      } else {
        for (int i = 0; i < count; i++) {
          to[i] = Math.max(to[i], from[i]);
        }
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] /= divisor;
      }
    }
  }

  // Unsigned integers are compared with their highest bit inverted, which gives the order of signed
  // ones.

  /** Integers of 8 bits. */
  private static final class ByteBlock extends ArrayBlock<byte[]> {
    private final int flip;

    ByteBlock(boolean signed) {
      super(new byte[LENGTH], new byte[LENGTH], Byte.BYTES);
      this.flip = signed ? 0 : Byte.MIN_VALUE;
    }

    @Override
    void add(byte[] to, byte[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(byte[] to, byte[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void choose(byte[] to, byte[] from, boolean lesser, int count) {
      int turn = flip;
      if (lesser) {
        for (int i = 0; i < count; i++) {
          to[i] = (byte) (Math.min(to[i] ^ turn, from[i] ^ turn) ^ turn);
        }
      } else {
        for (int i = 0; i < count; i++) {
          to[i] = (byte) (Math.max(to[i] ^ turn, from[i] ^ turn) ^ turn);
        }
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = (byte) ((flip == 0 ? a[i] : a[i] & 0xff) / divisor);
      }
    }
  }

  /** Integers of 32 bits. */
  private static final class IntBlock extends ArrayBlock<int[]> {
    private final int flip;

    IntBlock(boolean signed) {
      super(new int[LENGTH], new int[LENGTH], Integer.BYTES);
      this.flip = signed ? 0 : Integer.MIN_VALUE;
    }

    @Override
    void add(int[] to, int[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(int[] to, int[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void choose(int[] to, int[] from, boolean lesser, int count) {
      int turn = flip;
      if (lesser) {
        for (int i = 0; i < count; i++) {
          to[i] = Math.min(to[i] ^ turn, from[i] ^ turn) ^ turn;
        }
      } else {
        for (int i = 0; i < count; i++) {
          to[i] = Math.max(to[i] ^ turn, from[i] ^ turn) ^ turn;
        }
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = flip == 0 ? a[i] / divisor : Integer.divideUnsigned(a[i], divisor);
      }
    }
  }

  /** Integers of 64 bits. */
  private static final class LongBlock extends ArrayBlock<long[]> {
    private final long flip;

    LongBlock(boolean signed) {
      super(new long[LENGTH], new long[LENGTH], Long.BYTES);
      this.flip = signed ? 0 : Long.MIN_VALUE;
    }

    @Override
    void add(long[] to, long[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    @Override
    void multiply(long[] to, long[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    @Override
    void choose(long[] to, long[] from, boolean lesser, int count) {
      long turn = flip;
      if (lesser) {
        for (int i = 0; i < count; i++) {
          to[i] = Math.min(to[i] ^ turn, from[i] ^ turn) ^ turn;
        }
      } else {
        for (int i = 0; i < count; i++) {
          to[i] = Math.max(to[i] ^ turn, from[i] ^ turn) ^ turn;
        }
      }
    }

    @Override
    void divide(int divisor, int count) {
      for (int i = 0; i < count; i++) {
        a[i] = flip == 0 ? a[i] / divisor : Long.divideUnsigned(a[i], divisor);
      }
    }
  }
}
