// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DataType;
import io.fluxccl.device.HalfFloat;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Optional;

/**
 * The formats of 8 and 16 bits: the library's conversions, and values straight from definitions.
 */
enum SmallFloat {
  FLOAT16(DataType.FLOAT16, 5, 10) {
    @Override
    float toFloat(int bits) {
      return HalfFloat.fromFloat16((short) bits);
    }

    @Override
    int bitsOf(float value) {
      return HalfFloat.toFloat16(value) & 0xffff;
    }
  },
  BFLOAT16(DataType.BFLOAT16, 8, 7) {
    @Override
    float toFloat(int bits) {
      return HalfFloat.fromBfloat16((short) bits);
    }

    @Override
    int bitsOf(float value) {
      return HalfFloat.toBfloat16(value) & 0xffff;
    }
  },
  E4M3(DataType.FLOAT8_E4M3, 4, 3) {
    @Override
    float toFloat(int bits) {
      return Float8.E4M3.toFloat((byte) bits);
    }

    @Override
    int bitsOf(float value) {
      return Float8.E4M3.fromFloat(value) & 0xff;
    }
  },
  E5M2(DataType.FLOAT8_E5M2, 5, 2) {
    @Override
    float toFloat(int bits) {
      return Float8.E5M2.toFloat((byte) bits);
    }

    @Override
    int bitsOf(float value) {
      return Float8.E5M2.fromFloat(value) & 0xff;
    }
  };

  final DataType type;

  /** The sign's bit. */
  final int sign;

  /** The bits of the largest finite value. */
  final int largest;

  private final int fractionBits;
  private final int bias;

  SmallFloat(DataType type, int exponentBits, int fractionBits) {
    this.type = type;
    this.fractionBits = fractionBits;
    sign = 1 << exponentBits + fractionBits;
    bias = (1 << exponentBits - 1) - 1;
    // E4M3 has no infinity, and only one magnitude that is no number.
    largest = type == DataType.FLOAT8_E4M3 ? sign - 2 : sign - (1 << fractionBits) - 1;
  }

  static Optional<SmallFloat> of(DataType type) {
    return Arrays.stream(values()).filter(format -> format.type == type).findFirst();
  }

  /** Converts bits by the library. */
  abstract float toFloat(int bits);

  /** Converts a value by the library. */
  abstract int bitsOf(float value);

  int get(ByteBuffer buffer, int at) {
    return type.size() == 1 ? buffer.get(at) & 0xff : buffer.getShort(at) & 0xffff;
  }

  void put(ByteBuffer buffer, int at, int bits) {
    if (type.size() == 1) {
      buffer.put(at, (byte) bits);
    } else {
      buffer.putShort(at, (short) bits);
    }
  }

  /** Returns the value that the format defines for some bits. */
  double exact(int bits) {
    int magnitude = bits & sign - 1;
    boolean isInfinite = magnitude == largest + 1 && this != E4M3;
    double value =
        magnitude <= largest
            ? finite(magnitude)
            : isInfinite ? Double.POSITIVE_INFINITY : Double.NaN;
    return (bits & sign) == 0 ? value : -value;
  }

  /** Returns a finite value, or the power of two that would follow the largest one. */
  private double finite(int magnitude) {
    int exponent = magnitude >> fractionBits;
    int one = 1 << fractionBits;
    int fraction = magnitude & one - 1;
    return exponent == 0
        ? fraction * Math.pow(2, 1 - bias - fractionBits)
        : (one + fraction) * Math.pow(2, exponent - bias - fractionBits);
  }

  /** Returns the float between the value of a magnitude and the next one. */
  float middle(int magnitude) {
    return (float) ((finite(magnitude) + finite(magnitude + 1)) / 2);
  }

  /**
   * Returns the bits of the value nearest to a number; ties go to even bits. Formats of 8 bits
   * round numbers that are too large to the largest finite value, others to infinity.
   */
  int nearest(double number) {
    double magnitude = Math.abs(number);
    int low = 0;
    int high = largest + 1;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      if (finite(middle) <= magnitude) {
        low = middle;
      } else {
        high = middle;
      }
    }
    double below = magnitude - finite(low);
    double above = finite(low + 1) - magnitude;
    int rounded = above < below || above == below && low % 2 == 1 ? low + 1 : low;
    int bits = type.size() == 1 ? Math.min(rounded, largest) : rounded;
    return Double.doubleToRawLongBits(number) < 0 ? bits | sign : bits;
  }
}
