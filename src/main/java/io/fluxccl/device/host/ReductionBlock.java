// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import java.util.function.IntFunction;
import org.agrona.UnsafeApi;

/**
 * A block of elements that one thread reduces in arrays. Memory is copied in and out in bulk, so
 * that the JIT compiler turns the loops over arrays into vector code. This works best if each class
 * has its own arrays and passes them to loops in static methods.
 *
 * @param <A> the arrays of the elements
 */
abstract class ReductionBlock<A> {
  /** The most elements of a block: results and one source stay in the first-level cache. */
  static final int LENGTH = 2048;

  /** The elements. */
  final A a;

  /** The elements that they are combined with. */
  final A b;

  private final long base;
  private final int size;

  ReductionBlock(IntFunction<A> newArray, int size) {
    this.a = newArray.apply(LENGTH);
    this.b = newArray.apply(LENGTH);
    this.base = UnsafeApi.arrayBaseOffset(a.getClass());
    this.size = size;
  }

  static ReductionBlock<?> of(DataType type) {
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
  void load(long address, int count) {
    copyIn(a, base, address, (long) count * size);
  }

  /** Loads the elements to combine with. */
  void loadSource(long address, int count) {
    copyIn(b, base, address, (long) count * size);
  }

  /** Combines the block with the elements at an address; AVG adds. */
  abstract void combine(ReduceOp op, long address, int count);

  /** Divides each element of the block. */
  abstract void divide(int divisor, int count);

  /** Writes the block to an address and keeps it. */
  void store(long address, int count) {
    copyOut(a, base, address, (long) count * size);
  }

  static void copyIn(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(null, address, array, baseOffset, bytes);
  }

  static void copyOut(Object array, long baseOffset, long address, long bytes) {
    UnsafeApi.copyMemory(array, baseOffset, null, address, bytes);
  }

  /** Integers of 8 bits. */
  private static final class ByteBlock extends ReductionBlock<byte[]> {
    /**
     * The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones.
     */
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

  /** Integers of 32 bits. */
  private static final class IntBlock extends ReductionBlock<int[]> {
    /**
     * The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones.
     */
    private final int flip;

    IntBlock(boolean signed) {
      super(int[]::new, Integer.BYTES);
      flip = signed ? 0 : Integer.MIN_VALUE;
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
        a[i] = flip == 0 ? a[i] / divisor : Integer.divideUnsigned(a[i], divisor);
      }
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
  }

  /** Integers of 64 bits. */
  private static final class LongBlock extends ReductionBlock<long[]> {
    /**
     * The highest bit if unsigned: inverting it gives unsigned integers the order of signed ones.
     */
    private final long flip;

    LongBlock(boolean signed) {
      super(long[]::new, Long.BYTES);
      flip = signed ? 0 : Long.MIN_VALUE;
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
        a[i] = flip == 0 ? a[i] / divisor : Long.divideUnsigned(a[i], divisor);
      }
    }

    private static void add(long[] to, long[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    private static void multiply(long[] to, long[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    private static void minInto(long[] to, long[] from, long flip, int count) {
      for (int i = 0; i < count; i++) {
        to[i] = Math.min(to[i] ^ flip, from[i] ^ flip) ^ flip;
      }
    }
  }

  /** Doubles. */
  private static final class DoubleBlock extends ReductionBlock<double[]> {
    DoubleBlock() {
      super(double[]::new, Double.BYTES);
    }

    @Override
    void combine(ReduceOp op, long address, int count) {
      loadSource(address, count);
      switch (op) {
        case PROD -> multiply(a, b, count);
        case MIN -> minInto(a, b, count);
        case MAX -> maxInto(a, b, count);
        default -> add(a, b, count);
      }
    }

    @Override
    void divide(int divisor, int count) {
      double[] values = a;
      for (int i = 0; i < count; i++) {
        values[i] /= divisor;
      }
    }

    private static void add(double[] to, double[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    private static void multiply(double[] to, double[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    private static void minInto(double[] to, double[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] = Math.min(to[i], from[i]);
      }
    }

    private static void maxInto(double[] to, double[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] = Math.max(to[i], from[i]);
      }
    }
  }

  /**
   * 8-bit floating-point elements, combined as floats and rounded once, at the end. Tables convert
   * both ways. The index into the table of rounded values is the upper half of the float, with its
   * last bit set if the lower half is not zero. Its 7 bits of fraction are at least two more than
   * the result's, so this rounds like the whole float.
   */
  private static final class Float8Block extends FloatBlock {
    private static final long BASE = UnsafeApi.arrayBaseOffset(byte[].class);
    private static final long INT_BASE = UnsafeApi.arrayBaseOffset(int[].class);
    private static final long FLOAT_BASE = UnsafeApi.arrayBaseOffset(float[].class);
    private static final byte[][] ROUNDED = new byte[Float8.values().length][];

    private final float[] values;
    private final byte[] rounded;
    private final byte[] bytes = new byte[LENGTH];
    private final int[] bits = new int[LENGTH];

    Float8Block(Float8 format) {
      this.values = format.table();
      this.rounded = rounded(format);
    }

    private static synchronized byte[] rounded(Float8 format) {
      if (ROUNDED[format.ordinal()] == null) {
        byte[] table = new byte[0x10000];
        for (int upper = 0; upper < table.length; upper++) {
          table[upper] = format.fromFloat(Float.intBitsToFloat(upper << 16));
        }
        ROUNDED[format.ordinal()] = table;
      }
      return ROUNDED[format.ordinal()];
    }

    @Override
    void load(long address, int count) {
      read(address, a, count);
    }

    @Override
    void loadSource(long address, int count) {
      read(address, b, count);
    }

    private void read(long address, float[] to, int count) {
      copyIn(bytes, BASE, address, count);
      for (int i = 0; i < count; i++) {
        to[i] = values[bytes[i] & 0xff];
      }
    }

    @Override
    void store(long address, int count) {
      UnsafeApi.copyMemory(a, FLOAT_BASE, bits, INT_BASE, (long) count * Float.BYTES);
      for (int i = 0; i < count; i++) {
        int x = bits[i];
        bytes[i] = rounded[x >>> 16 | (x & 0xffff) + 0xffff >>> 16];
      }
      copyOut(bytes, BASE, address, count);
    }
  }

  /** Elements that are combined as floats. */
  static class FloatBlock extends ReductionBlock<float[]> {
    FloatBlock() {
      super(float[]::new, Float.BYTES);
    }

    @Override
    final void combine(ReduceOp op, long address, int count) {
      loadSource(address, count);
      switch (op) {
        case PROD -> multiply(a, b, count);
        case MIN -> minInto(a, b, count);
        case MAX -> maxInto(a, b, count);
        default -> add(a, b, count);
      }
    }

    @Override
    final void divide(int divisor, int count) {
      float[] values = a;
      for (int i = 0; i < count; i++) {
        values[i] /= divisor;
      }
    }

    private static void add(float[] to, float[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] += from[i];
      }
    }

    private static void multiply(float[] to, float[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] *= from[i];
      }
    }

    private static void minInto(float[] to, float[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] = Math.min(to[i], from[i]);
      }
    }

    private static void maxInto(float[] to, float[] from, int count) {
      for (int i = 0; i < count; i++) {
        to[i] = Math.max(to[i], from[i]);
      }
    }
  }
}
