// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;

/**
 * 16-bit floating-point values, one at a time: IEEE 754 binary16 and bfloat16. Conversions from
 * float round to nearest, ties to even. Values that are too large become infinite. NaN stays NaN.
 */
@Experimental
public final class HalfFloat {
  private static final int SIGN = 0x8000;
  private static final int INFINITE = 0x7c00;
  private static final int NOT_A_NUMBER = 0x7e00;

  private HalfFloat() {}

  /** Returns the float of the same value as the binary16 of these bits. */
  public static float fromFloat16(short half) {
    int sign = (half & SIGN) << 16;
    int magnitude = half & 0x7fff;
    if (magnitude >= INFINITE) {
      return Float.intBitsToFloat(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    }
    return Float.intBitsToFloat(sign | magnitude << 13) * 0x1p112f;
  }

  /** Returns the bits of the binary16 nearest to a float. */
  public static short toFloat16(float value) {
    int bits = Float.floatToRawIntBits(value);
    int sign = bits >>> 16 & SIGN;
    if (Float.isNaN(value)) {
      return (short) (sign | NOT_A_NUMBER);
    }
    float magnitude = Math.abs(value);
    if (magnitude >= 65520) { // halfway between the largest finite value and the next
      return (short) (sign | INFINITE);
    }
    // The last bit of this power of two has the weight of the result's last bit.
    int exponent = Math.max(bits >>> 23 & 0xff, 113);
    float rounder = Float.intBitsToFloat(exponent + 13 << 23);
    int steps = Float.floatToRawIntBits(magnitude + rounder) - Float.floatToRawIntBits(rounder);
    return (short) (sign | (exponent - 113 << 10) + steps);
  }

  /** Returns the float of the same value as the bfloat16 of these bits. */
  public static float fromBfloat16(short half) {
    return Float.intBitsToFloat(half << 16);
  }

  /** Returns the bits of the bfloat16 nearest to a float. */
  public static short toBfloat16(float value) {
    int bits = Float.floatToRawIntBits(value);
    if (Float.isNaN(value)) {
      return (short) ((bits | 0x400000) >>> 16);
    }
    return (short) (bits + 0x7fff + (bits >>> 16 & 1) >>> 16);
  }
}
