// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

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
