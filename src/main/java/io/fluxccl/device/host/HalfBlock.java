// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.HalfFloat;
import org.agrona.UnsafeApi;

/**
 * 16-bit floating-point elements, combined as floats and rounded once, at the end. Memory holds two
 * elements per int. Float arrays hold the elements with even indices first, followed by those with
 * odd indices. Every JDK vectorizes loops that use only ints or only floats, without offsets. For
 * the same reason, ints are reinterpreted as floats by copying between arrays.
 */
abstract class HalfBlock extends ReductionBlock.FloatBlock {
  private static final int PAIRS = LENGTH / 2;
  private static final long INT_BASE = UnsafeApi.arrayBaseOffset(int[].class);
  private static final long FLOAT_BASE = UnsafeApi.arrayBaseOffset(float[].class);

  private final int[] pairs = new int[PAIRS];
  private final int[] bits = new int[LENGTH];
  private final int[] oddBits = new int[PAIRS];

  /** The factor for unpacked floats. */
  private final float scale;

  /**
   * Creates a block.
   *
   * @param scale the factor for unpacked floats
   */
  HalfBlock(float scale) {
    this.scale = scale;
  }

  /**
   * Converts elements to the bits of floats.
   *
   * @param pairs two elements each
   * @param even receives the elements in the lower halves
   * @param odd receives the elements in the upper halves
   * @param count how many
   */
  abstract void unpack(int[] pairs, int[] even, int[] odd, int count);

  /**
   * Rounds floats.
   *
   * @param values the floats
   * @param bits their bits; receives the result in the lower half of each int, with zeros in the
   *     upper half
   * @param count how many
   */
  abstract void round(float[] values, int[] bits, int count);

  @Override
  final void load(long address, int count) {
    read(address, a, count);
  }

  @Override
  final void loadSource(long address, int count) {
    read(address, b, count);
  }

  private void read(long address, float[] to, int count) {
    int n = (count + 1) / 2;
    pairs[n - 1] = 0; // an odd count fills only half of it
    copyIn(pairs, INT_BASE, address, (long) count * Short.BYTES);
    unpack(pairs, bits, oddBits, n);
    long length = (long) n * Float.BYTES;
    UnsafeApi.copyMemory(bits, INT_BASE, to, FLOAT_BASE, length);
    UnsafeApi.copyMemory(oddBits, INT_BASE, to, FLOAT_BASE + length, length);
    if (scale != 1) {
      scale(to, scale, 2 * n);
    }
  }

  private static void scale(float[] values, float by, int count) {
    for (int i = 0; i < count; i++) {
      values[i] *= by;
    }
  }

  @Override
  final void store(long address, int count) {
    int n = (count + 1) / 2;
    long length = (long) n * Float.BYTES;
    toBits(a, bits, 2 * n);
    round(a, bits, 2 * n);
    UnsafeApi.copyMemory(bits, INT_BASE + length, oddBits, INT_BASE, length);
    join(bits, oddBits, pairs, n);
    copyOut(pairs, INT_BASE, address, (long) count * Short.BYTES);
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
   * IEEE 754 binary16 elements. To float: the bits, shifted to a float's fields, are the value
   * times 2^-112, also for subnormal values. To binary16: adding a float whose last bit has the
   * weight of the result's last bit makes the hardware round to nearest even. Subnormal results use
   * the smallest such float.
   */
  static final class Float16 extends HalfBlock {
    private static final int FLOAT_EXPONENT = 0x7f800000;
    private static final int LEAST_EXPONENT = 0x38800000; // of the least normal binary16
    private static final int ROUNDER_ABOVE = 0x07800000; // 2^15 times as much
    private static final float OVERFLOW_UP = 0x1p112f;
    private static final float OVERFLOW_DOWN = 0x1p-110f;

    private final float[] rounders = new float[LENGTH];
    private final int[] rounded = new int[LENGTH];

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
