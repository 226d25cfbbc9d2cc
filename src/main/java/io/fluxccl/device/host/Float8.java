// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;

/**
 * The two 8-bit floating-point formats, one value at a time. Conversions from float round to
 * nearest, ties to even. Larger values than the largest finite one, infinities included, become
 * that one with their sign, as in CUDA's saturating conversions. NaN becomes 0x7f. Conversions to
 * float are exact, so an infinity of E5M2 is infinite while values are combined.
 */
@Experimental
public enum Float8 {
  /** 4 bits of exponent, 3 of fraction; up to 448, no infinity, NaN is 0x7f and 0xff. */
  E4M3(4, 3, 0x7e, false),
  /** 5 bits of exponent, 2 of fraction; up to 57344, infinities at 0x7c and 0xfc, NaN above. */
  E5M2(5, 2, 0x7b, true);

  private static final int NOT_A_NUMBER = 0x7f;

  private final int fractionBits;
  private final int bias;
  private final int largest;
  private final float[] values = new float[256];

  Float8(int exponentBits, int fractionBits, int largest, boolean hasInfinity) {
    this.fractionBits = fractionBits;
    this.bias = (1 << exponentBits - 1) - 1;
    this.largest = largest;
    for (int bits = 0; bits < values.length; bits++) {
      values[bits] = decode(bits, hasInfinity);
    }
  }

  private float decode(int bits, boolean hasInfinity) {
    int magnitude = bits & 0x7f;
    float sign = (bits & 0x80) == 0 ? 1 : -1;
    if (magnitude > largest) {
      return hasInfinity && magnitude == largest + 1 ? sign * Float.POSITIVE_INFINITY : Float.NaN;
    }
    int exponent = magnitude >> fractionBits;
    int fraction = magnitude & (1 << fractionBits) - 1;
    int units = exponent == 0 ? fraction : fraction + (1 << fractionBits);
    return sign * Math.scalb((float) units, Math.max(1, exponent) - bias - fractionBits);
  }

  /** Returns the float of the same value. */
  public float toFloat(byte bits) {
    return values[bits & 0xff];
  }

  /** Returns the bits of the nearest value. */
  public byte fromFloat(float value) {
    if (Float.isNaN(value)) {
      return NOT_A_NUMBER;
    }
    int sign = Float.floatToRawIntBits(value) >>> 24 & 0x80;
    float magnitude = Math.abs(value);
    if (magnitude >= values[largest]) {
      return (byte) (sign | largest);
    }
    int exponent = Math.max(Math.getExponent(magnitude), 1 - bias);
    // In units of the last place. A carry out of the fraction correctly increases the exponent.
    int units = (int) Math.rint((double) Math.scalb(magnitude, fractionBits - exponent));
    int bits = (exponent + bias - 1 << fractionBits) + units;
    return (byte) (sign | Math.min(bits, largest));
  }

  /** Returns all values by their bits. Callers must not change the array. */
  float[] table() {
    return values;
  }
}
