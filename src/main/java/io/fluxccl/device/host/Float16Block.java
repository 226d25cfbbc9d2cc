package io.fluxccl.device.host;

/**
 * IEEE 754 binary16 elements. To float: the bits moved to a float's places are the value times
 * 2^-112, subnormal ones included. To binary16: adding a float whose last bit is worth the result's
 * last bit lets the hardware round to nearest even; subnormal results get the least such float.
 */
final class Float16Block extends HalfBlock {
  private static final int FLOAT_EXPONENT = 0x7f800000;
  private static final int LEAST_EXPONENT = 0x38800000; // of the least normal binary16
  private static final int ROUNDER_ABOVE = 0x07800000; // 2^15 times as much
  private static final float OVERFLOW_UP = 0x1p112f;
  private static final float OVERFLOW_DOWN = 0x1p-110f;

  private final float[] rounders = new float[PAIRS];
  private final int[] rounded = new int[PAIRS];

  Float16Block() {
    super(0x1p112f);
  }

  @Override
  void unpackEven(int[] pairs, int[] bits, int count) {
    for (int i = 0; i < count; i++) {
      int x = pairs[i];
      int magnitude = x & 0x7fff;
      int special = (0x7bff - magnitude) >> 31; // all ones when infinite or no number
      bits[i] = (x & 0x8000) << 16 | magnitude << 13 | FLOAT_EXPONENT & special;
    }
  }

  @Override
  void unpackOdd(int[] pairs, int[] bits, int count) {
    for (int i = 0; i < count; i++) {
      int x = pairs[i] >>> 16;
      int magnitude = x & 0x7fff;
      int special = (0x7bff - magnitude) >> 31;
      bits[i] = (x & 0x8000) << 16 | magnitude << 13 | FLOAT_EXPONENT & special;
    }
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
