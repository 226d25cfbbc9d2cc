// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.IntToLongFunction;

/**
 * The data of a run: the inputs of all ranks and the exact results, the same in every run.
 *
 * <p>Values repeat after a prime number of elements, so that one block is made once and copied at
 * memory speed. Data at a wrong place, by any chunk size that an algorithm would use, is still
 * wrong. Results do not depend on the order of the additions:
 *
 * <ul>
 *   <li>integers use their whole range, because they wrap around; for avg, values so small that
 *       their sum fits;
 *   <li>floating-point values are multiples of 1/4 so small that every partial sum is exact in 8
 *       bits of precision; for prod, powers of two of which at most {@value #FEW} are not one;
 *   <li>of the types of 8 bits at most {@value #FEW} ranks' values are not zero, and those are one
 *       such multiple, so that partial sums are exact in 3 bits of precision;
 *   <li>data that is only moved has any bits but those of infinities and NaNs.
 * </ul>
 *
 * An average is the exact one, rounded to nearest even (integers: towards zero).
 *
 * @param type of the elements
 * @param op how they are reduced; null for data that is only moved
 * @param nRanks how many ranks
 */
record ReductionPattern(DataType type, ReduceOp op, int nRanks) {
  /** The largest number of ranks with exact results: their sum of ones must fit 7 bits. */
  static final int MAX_RANKS = 127;

  /** Elements until values repeat. */
  static final int PERIOD = 65_521;

  private static final int FEW = 8;
  private static final int MAX_SMALL = 8;
  private static final int MAX_SMALL_SUM = 127;
  private static final double FRACTION = 0.25;

  /** Refuses a number of ranks without exact results. */
  ReductionPattern {
    if (nRanks < 1 || nRanks > MAX_RANKS) {
      throw InvalidUsage.of(
          "nRanks=%s is out of range for perf's data; 1 to %s", nRanks, MAX_RANKS);
    }
  }

  /** Returns one period of the input of a rank; little-endian, direct. */
  ByteBuffer input(int rank) {
    return block(i -> element(rank, i));
  }

  /** Returns one period of the result; little-endian, direct. */
  ByteBuffer expected() {
    return block(i -> type.isFloatingPoint() ? bits(reduceReals(i)) : reduceIntegers(i));
  }

  /**
   * Returns sums of floating-point elements; little-endian, direct.
   *
   * @param from where the elements of each rank begin; -1 for none of that rank's
   * @param length how many sums
   */
  ByteBuffer sums(long[] from, int length) {
    ByteBuffer sums =
        ByteBuffer.allocateDirect(length * type.size()).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < length; i++) {
      double sum = 0;
      for (int rank = 0; rank < from.length; rank++) {
        sum += from[rank] < 0 ? 0 : real(rank, (int) ((from[rank] + i) % PERIOD));
      }
      put(sums, bits(sum));
    }
    return sums.flip();
  }

  /** Returns the bits of an input element. */
  long element(int rank, int index) {
    if (!type.isFloatingPoint()) {
      return integer(rank, index);
    }
    return op == null ? mix(rank, index) & ~highestExponentBit() : bits(real(rank, index));
  }

  /** Returns an input element of an integer type, sign- or zero-extended by the type. */
  long integer(int rank, int index) {
    long random = mix(rank, index);
    if (op == ReduceOp.AVG) {
      return small(random, signed());
    }
    // Odd factors, or most products were zero.
    return extend(op == ReduceOp.PROD ? random | 1 : random);
  }

  /** Returns an input element of a floating-point type; exact in each of them. */
  double real(int rank, int index) {
    long random = mix(rank, index);
    if (op != ReduceOp.PROD) {
      if (type.size() > 1) {
        return small(random, true) * FRACTION;
      }
      return isOneOfFew(rank, index) ? (Math.floorMod(random, 3) - 1) * FRACTION : 0;
    }
    double sign = (random & 4) == 0 ? 1 : -1;
    return isOneOfFew(rank, index) ? sign * Math.scalb(1.0, (int) (random & 3) % 3 - 1) : sign;
  }

  private boolean isOneOfFew(int rank, int index) {
    return (rank + index) % nRanks < FEW;
  }

  private double reduceReals(int index) {
    double result = real(0, index);
    for (int rank = 1; rank < nRanks; rank++) {
      double value = real(rank, index);
      switch (op) {
        case PROD -> result *= value;
        case MIN -> result = Math.min(result, value);
        case MAX -> result = Math.max(result, value);
        default -> result += value;
      }
    }
    // Rounding twice, to 53 bits and then to the type's, gives the same as once: the operands have
    // at most 8 bits.
    return op == ReduceOp.AVG ? result / nRanks : result;
  }

  private long reduceIntegers(int index) {
    long result = integer(0, index);
    for (int rank = 1; rank < nRanks; rank++) {
      long value = integer(rank, index);
      switch (op) {
        case PROD -> result *= value;
        case MIN -> result = less(value, result) ? value : result;
        case MAX -> result = less(result, value) ? value : result;
        default -> result += value;
      }
    }
    return op == ReduceOp.AVG ? result / nRanks : result;
  }

  private boolean less(long left, long right) {
    return (signed() ? Long.compare(left, right) : Long.compareUnsigned(left, right)) < 0;
  }

  private boolean signed() {
    return type == DataType.INT8 || type == DataType.INT32 || type == DataType.INT64;
  }

  private long extend(long value) {
    int unused = Long.SIZE - 8 * type.size();
    return signed() ? value << unused >> unused : value << unused >>> unused;
  }

  private long small(long random, boolean signed) {
    int most = Math.min(MAX_SMALL, MAX_SMALL_SUM / nRanks);
    return signed ? Math.floorMod(random, 2 * most + 1) - most : Math.floorMod(random, most + 1);
  }

  private long bits(double value) {
    return switch (type) {
      case FLOAT64 -> Double.doubleToRawLongBits(value);
      case FLOAT32 -> Float.floatToRawIntBits((float) value);
      case FLOAT16 -> SmallFloat.HALF.bits(value);
      case FLOAT8_E4M3 -> SmallFloat.E4M3.bits(value);
      case FLOAT8_E5M2 -> SmallFloat.E5M2.bits(value);
      default -> SmallFloat.BFLOAT16.bits(value);
    };
  }

  private void put(ByteBuffer block, long bits) {
    switch (type.size()) {
      case 1 -> block.put((byte) bits);
      case 2 -> block.putShort((short) bits);
      case 4 -> block.putInt((int) bits);
      default -> block.putLong(bits);
    }
  }

  private ByteBuffer block(IntToLongFunction element) {
    ByteBuffer block =
        ByteBuffer.allocateDirect(PERIOD * type.size()).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < PERIOD; i++) {
      put(block, element.applyAsLong(i));
    }
    return block.flip();
  }

  /** Returns the bit without which no value is an infinity or a NaN. */
  private long highestExponentBit() {
    return 1L << (8 * type.size() - 2);
  }

  /** SplitMix64's finalizer: every bit of the result depends on every bit of rank and index. */
  private static long mix(int rank, int index) {
    long z = ((long) rank << 32 | index) * 0x9e3779b97f4a7c15L + 0x9e3779b97f4a7c15L;
    z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
    z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
    return z ^ (z >>> 31);
  }

  /**
   * Floating-point formats of 8 and 16 bits, rounding to nearest, ties to even. Kept apart from the
   * collectives' own conversions, which are what {@code perf} checks.
   */
  enum SmallFloat {
    /** IEEE 754 binary16. */
    HALF(5, 10, 0x7c00),
    /** The upper half of a binary32. */
    BFLOAT16(8, 7, 0x7f80),
    /** 448 at most, also of what is larger. */
    E4M3(4, 3, 0x7e),
    /** 57344 at most, also of what is larger. */
    E5M2(5, 2, 0x7b);

    private final int bias;
    private final int fractionBits;
    private final int most;

    /**
     * A format.
     *
     * @param most the bits for whatever is too large: of infinity, or of the largest value
     */
    SmallFloat(int exponentBits, int fractionBits, int most) {
      this.bias = (1 << (exponentBits - 1)) - 1;
      this.fractionBits = fractionBits;
      this.most = most;
    }

    /**
     * The bits of the nearest value.
     *
     * @param value any but NaN
     * @return 8 or 16 bits, the sign in the highest
     */
    int bits(double value) {
      int signBit = most < 0x80 ? 7 : 15;
      int sign = (int) (Double.doubleToRawLongBits(value) >>> 63) << signBit;
      double magnitude = Math.abs(value);
      if (magnitude == Double.POSITIVE_INFINITY) {
        return sign | most;
      }
      int exponent = Math.max(Math.getExponent(magnitude), 1 - bias);
      if (exponent > bias + 1) {
        return sign | most;
      }
      // A multiple of the unit in the last place. Scaling by a power of two loses nothing, and a
      // carry out of the fraction correctly increments the exponent.
      long units = (long) Math.rint(Math.scalb(magnitude, fractionBits - exponent));
      long bits = ((long) (exponent + bias - 1) << fractionBits) + units;
      return sign | (int) Math.min(bits, most);
    }
  }
}
