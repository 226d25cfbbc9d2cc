// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * Reductions in exact arithmetic, rounded once at the end: slow, and written with nothing of the
 * code it checks.
 */
final class ExactReduction {
  private static final MathContext DIGITS = new MathContext(80);
  private static final Map<DataType, Format> FORMATS =
      Map.of(
          DataType.FLOAT16, new Format(5, 10, 0x7c00),
          DataType.BFLOAT16, new Format(8, 7, 0x7f80),
          DataType.FLOAT8_E4M3, new Format(4, 3, 0x7f),
          DataType.FLOAT8_E5M2, new Format(5, 2, 0x7c));

  private static final Map<DataType, TreeMap<BigDecimal, Integer>> SMALL_FLOATS =
      FORMATS.entrySet().stream()
          .collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().finiteValues()));

  /** A small float with a sign; {@code end} has the bits of the first value that is not finite. */
  private record Format(int exponentBits, int fractionBits, int end) {
    double value(int bits) {
      int magnitude = bits & (sign() - 1);
      int exponent = Math.max(1, magnitude >> fractionBits);
      int hidden = magnitude >> fractionBits == 0 ? 0 : 1 << fractionBits;
      int units = hidden + (magnitude & ((1 << fractionBits) - 1));
      int bias = (1 << (exponentBits - 1)) - 1;
      double value = Math.scalb((double) units, exponent - bias - fractionBits);
      return bits == magnitude ? value : -value;
    }

    private int sign() {
      return 1 << (exponentBits + fractionBits);
    }

    /** All finite values by their bits; zero with the bits of the positive one. */
    TreeMap<BigDecimal, Integer> finiteValues() {
      TreeMap<BigDecimal, Integer> values = new TreeMap<>();
      for (int bits = 0; bits < end; bits++) {
        values.put(new BigDecimal(-value(bits)), bits | sign());
        values.put(new BigDecimal(value(bits)), bits);
      }
      return values;
    }
  }

  private ExactReduction() {}

  /** Reduces one element of each rank; bits in the low end of each long. */
  static long reduce(List<Long> ranks, DataType type, ReduceOp op) {
    List<BigDecimal> values = ranks.stream().map(bits -> decode(bits, type)).toList();
    BigDecimal result =
        switch (op) {
          case MIN -> values.stream().reduce(BigDecimal::min).orElseThrow();
          case MAX -> values.stream().reduce(BigDecimal::max).orElseThrow();
          case PROD -> values.stream().reduce(BigDecimal::multiply).orElseThrow();
          default -> values.stream().reduce(BigDecimal::add).orElseThrow();
        };
    if (op == ReduceOp.AVG) {
      BigDecimal n = BigDecimal.valueOf(ranks.size());
      result = type.isFloatingPoint() ? result.divide(n, DIGITS) : result.divideToIntegralValue(n);
    }
    return encode(result, type);
  }

  static long read(ByteBuffer buffer, int index, DataType type) {
    return switch (type.size()) {
      case 1 -> buffer.get(index) & 0xff;
      case 2 -> buffer.getShort(2 * index) & 0xffff;
      case 4 -> buffer.getInt(4 * index) & 0xffff_ffffL;
      default -> buffer.getLong(8 * index);
    };
  }

  static void write(ByteBuffer buffer, int index, DataType type, long bits) {
    switch (type.size()) {
      case 1 -> buffer.put(index, (byte) bits);
      case 2 -> buffer.putShort(2 * index, (short) bits);
      case 4 -> buffer.putInt(4 * index, (int) bits);
      default -> buffer.putLong(8 * index, bits);
    }
  }

  private static BigDecimal decode(long bits, DataType type) {
    return switch (type) {
      case INT8 -> BigDecimal.valueOf((byte) bits);
      case INT32 -> BigDecimal.valueOf((int) bits);
      case INT64 -> BigDecimal.valueOf(bits);
      case UINT8, UINT32 -> BigDecimal.valueOf(bits);
      case UINT64 -> new BigDecimal(new BigInteger(Long.toUnsignedString(bits)));
      case FLOAT32 -> new BigDecimal(Float.intBitsToFloat((int) bits));
      case FLOAT64 -> new BigDecimal(Double.longBitsToDouble(bits));
      default -> new BigDecimal(value(type, (int) bits));
    };
  }

  private static long encode(BigDecimal value, DataType type) {
    if (!type.isFloatingPoint()) {
      BigInteger modulus = BigInteger.ONE.shiftLeft(8 * type.size());
      return value.toBigIntegerExact().mod(modulus).longValue();
    }
    return switch (type) {
      case FLOAT32 -> Float.floatToRawIntBits(value.floatValue()) & 0xffff_ffffL;
      case FLOAT64 -> Double.doubleToRawLongBits(value.doubleValue());
      default -> nearest(type, value);
    };
  }

  /** Returns the value that these bits have as a small float. */
  static double value(DataType type, int bits) {
    return FORMATS.get(type).value(bits);
  }

  static int nearest(DataType type, BigDecimal value) {
    TreeMap<BigDecimal, Integer> values = SMALL_FLOATS.get(type);
    Map.Entry<BigDecimal, Integer> below = values.floorEntry(value);
    Map.Entry<BigDecimal, Integer> above = values.ceilingEntry(value);
    int order = value.subtract(below.getKey()).compareTo(above.getKey().subtract(value));
    if (order == 0) {
      return (below.getValue() & 1) == 0 ? below.getValue() : above.getValue();
    }
    return order < 0 ? below.getValue() : above.getValue();
  }
}
