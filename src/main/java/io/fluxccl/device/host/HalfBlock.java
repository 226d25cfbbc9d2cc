package io.fluxccl.device.host;

import io.fluxccl.ReduceOp;
import org.agrona.UnsafeApi;

/**
 * 16-bit floating-point elements, combined as floats and rounded once, at the end. They are handled
 * two in an int, those at even places in one array, those at odd places in another: loops of ints
 * alone and of floats alone, without offsets, become vector code on every JDK. Ints are taken for
 * floats, and back, by copying between arrays for the same reason.
 */
abstract class HalfBlock extends ReductionBlock {
  static final int PAIRS = LENGTH / 2;

  private static final long INT_BASE = UnsafeApi.arrayBaseOffset(int[].class);
  private static final long FLOAT_BASE = UnsafeApi.arrayBaseOffset(float[].class);

  private final float[] even = new float[PAIRS];
  private final float[] odd = new float[PAIRS];
  private final float[] source = new float[PAIRS];
  private final int[] pairs = new int[PAIRS];
  private final int[] evenBits = new int[PAIRS];
  private final int[] oddBits = new int[PAIRS];

  /** What the floats made by unpacking must be multiplied by. */
  private final float scale;

  HalfBlock(float scale) {
    this.scale = scale;
  }

  /**
   * Makes the bits of floats.
   *
   * @param pairs two elements each
   * @param even gets those of the lower halves
   * @param odd gets those of the upper halves
   * @param count how many
   */
  abstract void unpack(int[] pairs, int[] even, int[] odd, int count);

  /**
   * Rounds floats.
   *
   * @param values the floats
   * @param bits their bits; gets the result in the lower half of each int, the upper one zero
   * @param count how many
   */
  abstract void round(float[] values, int[] bits, int count);

  private void unpackFrom(long address, int count) {
    int n = pairCount(count);
    pairs[n - 1] = 0; // an odd count leaves half of it
    copyIn(pairs, INT_BASE, address, (long) count * Short.BYTES);
    unpack(pairs, evenBits, oddBits, n);
  }

  @Override
  final void load(long address, int count) {
    unpackFrom(address, count);
    int n = pairCount(count);
    toFloats(evenBits, even, n);
    scale(even, scale, n);
    toFloats(oddBits, odd, n);
    scale(odd, scale, n);
  }

  @Override
  final void combine(ReduceOp op, long address, int count) {
    unpackFrom(address, count);
    int n = pairCount(count);
    toFloats(evenBits, source, n);
    combine(op, even, source, scale, n);
    toFloats(oddBits, source, n);
    combine(op, odd, source, scale, n);
  }

  @Override
  final void divide(int divisor, int count) {
    int n = pairCount(count);
    divide(even, divisor, n);
    divide(odd, divisor, n);
  }

  @Override
  final void store(long address, int count) {
    int n = pairCount(count);
    toBits(even, evenBits, n);
    round(even, evenBits, n);
    toBits(odd, oddBits, n);
    round(odd, oddBits, n);
    join(evenBits, oddBits, pairs, n);
    copyOut(pairs, INT_BASE, address, (long) count * Short.BYTES);
  }

  private static int pairCount(int count) {
    return (count + 1) / 2;
  }

  static void toFloats(int[] from, float[] to, int count) {
    UnsafeApi.copyMemory(from, INT_BASE, to, FLOAT_BASE, (long) count * Float.BYTES);
  }

  static void toBits(float[] from, int[] to, int count) {
    UnsafeApi.copyMemory(from, FLOAT_BASE, to, INT_BASE, (long) count * Float.BYTES);
  }

  private static void join(int[] even, int[] odd, int[] pairs, int count) {
    for (int i = 0; i < count; i++) {
      pairs[i] = even[i] | odd[i] << 16;
    }
  }

  private static void scale(float[] values, float by, int count) {
    for (int i = 0; i < count; i++) {
      values[i] *= by;
    }
  }

  private static void divide(float[] values, float by, int count) {
    for (int i = 0; i < count; i++) {
      values[i] /= by;
    }
  }

  private static void combine(ReduceOp op, float[] a, float[] b, float scale, int count) {
    switch (op) {
      case PROD -> multiply(a, b, scale, count);
      case MIN -> min(a, b, scale, count);
      case MAX -> max(a, b, scale, count);
      default -> add(a, b, scale, count);
    }
  }

  private static void add(float[] a, float[] b, float scale, int count) {
    for (int i = 0; i < count; i++) {
      a[i] += b[i] * scale;
    }
  }

  private static void multiply(float[] a, float[] b, float scale, int count) {
    for (int i = 0; i < count; i++) {
      a[i] *= b[i] * scale;
    }
  }

  private static void min(float[] a, float[] b, float scale, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.min(a[i], b[i] * scale);
    }
  }

  private static void max(float[] a, float[] b, float scale, int count) {
    for (int i = 0; i < count; i++) {
      a[i] = Math.max(a[i], b[i] * scale);
    }
  }

  /** Elements that are the upper half of a float. */
  static final class Bfloat16 extends HalfBlock {
    Bfloat16() {
      super(1);
    }

    @Override
    void unpack(int[] pairs, int[] even, int[] odd, int count) {
      for (int i = 0; i < count; i++) {
        even[i] = pairs[i] << 16;
        odd[i] = pairs[i] & 0xffff0000;
      }
    }

    /** As {@link HalfFloat#toBfloat16}, without branches. */
    @Override
    void round(float[] values, int[] bits, int count) {
      for (int i = 0; i < count; i++) {
        int x = bits[i];
        int notNumber = (0x7f800000 - (x & 0x7fffffff)) >> 31;
        int rounded = x + 0x7fff + (x >>> 16 & 1);
        bits[i] = (rounded & ~notNumber | (x | 0x400000) & notNumber) >>> 16;
      }
    }
  }

  /**
   * IEEE 754 binary16 elements. To float: the bits moved to a float's places are the value times
   * 2^-112, subnormal ones included. To binary16: adding a float whose last bit is worth the
   * result's last bit lets the hardware round to nearest even; subnormal results get the least such
   * float.
   */
  static final class Float16 extends HalfBlock {
    private static final int FLOAT_EXPONENT = 0x7f800000;
    private static final int LEAST_EXPONENT = 0x38800000; // of the least normal binary16
    private static final int ROUNDER_ABOVE = 0x07800000; // 2^15 times as much
    private static final float OVERFLOW_UP = 0x1p112f;
    private static final float OVERFLOW_DOWN = 0x1p-110f;

    private final float[] rounders = new float[PAIRS];
    private final int[] rounded = new int[PAIRS];

    Float16() {
      super(0x1p112f);
    }

    @Override
    void unpack(int[] pairs, int[] even, int[] odd, int count) {
      for (int i = 0; i < count; i++) {
        even[i] = toFloatBits(pairs[i]);
        odd[i] = toFloatBits(pairs[i] >>> 16);
      }
    }

    private static int toFloatBits(int x) {
      int magnitude = x & 0x7fff;
      int special = (0x7bff - magnitude) >> 31; // all ones when infinite or no number
      return (x & 0x8000) << 16 | magnitude << 13 | FLOAT_EXPONENT & special;
    }

    @Override
    void round(float[] values, int[] bits, int count) {
      chooseRounders(bits, rounded, count);
      toFloats(rounded, rounders, count);
      addMagnitudes(values, rounders, count);
      toBits(rounders, rounded, count);
      compose(bits, rounded, count);
    }

    private static void chooseRounders(int[] bits, int[] rounders, int count) {
      for (int i = 0; i < count; i++) {
        int above = (bits[i] & FLOAT_EXPONENT) - LEAST_EXPONENT;
        rounders[i] =
            (above & ~(above >> 31)) + LEAST_EXPONENT + ROUNDER_ABOVE; // no Math.max: JDK 17
      }
    }

    private static void addMagnitudes(float[] values, float[] rounders, int count) {
      for (int i = 0; i < count; i++) {
        rounders[i] += Math.abs(values[i]) * OVERFLOW_UP * OVERFLOW_DOWN;
      }
    }

    private static void compose(int[] bits, int[] rounded, int count) {
      for (int i = 0; i < count; i++) {
        int x = bits[i];
        int sum = rounded[i];
        int magnitude = (sum >>> 13 & 0x7c00) + (sum & 0xfff);
        int notNumber = (FLOAT_EXPONENT - (x & 0x7fffffff)) >> 31;
        bits[i] = x >>> 16 & 0x8000 | magnitude & ~notNumber | 0x7e00 & notNumber;
      }
    }
  }
}
