package io.fluxccl.cli;

/**
 * Floating-point formats of 16 bits, rounding to nearest, ties to even. Kept apart from the
 * collectives' own conversions, which are what {@code perf} checks.
 */
enum SmallFloat {
  /** IEEE 754 binary16. */
  HALF(5, 10),
  /** The upper half of a binary32. */
  BFLOAT16(8, 7);

  private final int bias;
  private final int fractionBits;
  private final int infinity;

  SmallFloat(int exponentBits, int fractionBits) {
    this.bias = (1 << (exponentBits - 1)) - 1;
    this.fractionBits = fractionBits;
    this.infinity = ((1 << exponentBits) - 1) << fractionBits;
  }

  /**
   * The bits of the nearest value.
   *
   * @param value any but NaN
   * @return 16 bits, the sign in bit 15
   */
  int bits(double value) {
    int sign = (int) (Double.doubleToRawLongBits(value) >>> 63) << 15;
    double magnitude = Math.abs(value);
    if (magnitude == Double.POSITIVE_INFINITY) {
      return sign | infinity;
    }
    int exponent = Math.max(Math.getExponent(magnitude), 1 - bias);
    if (exponent > bias) {
      return sign | infinity;
    }
    // A multiple of the unit in the last place; scaling by a power of two loses nothing, and a
    // carry out of the fraction lands in the exponent, where it belongs.
    long units = (long) Math.rint(Math.scalb(magnitude, fractionBits - exponent));
    long bits = ((long) (exponent + bias - 1) << fractionBits) + units;
    return sign | (int) Math.min(bits, infinity);
  }
}
