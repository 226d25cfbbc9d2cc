// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Reductions in exact arithmetic, rounded once at the end: slow, and written with nothing of the
 * code it checks.
 */
final class ExactReduction {
  private static final MathContext DIGITS = new MathContext(80);
  private static final Map<DataType, TreeMap<BigDecimal, Integer>> SMALL_FLOATS =
      Map.of(
          DataType.FLOAT16, values(5, 10, 0x7c00, 0x8000),
          DataType.BFLOAT16, values(8, 7, 0x7f80, 0x8000),
          DataType.FLOAT8_E4M3, values(4, 3, 0x7f, 0x80),
          DataType.FLOAT8_E5M2, values(5, 2, 0x7c, 0x80));

  private static final Map<DataType, Map<Integer, BigDecimal>> BY_BITS =
      Map.of(
          DataType.FLOAT16, byBits(DataType.FLOAT16),
          DataType.BFLOAT16, byBits(DataType.BFLOAT16),
          DataType.FLOAT8_E4M3, byBits(DataType.FLOAT8_E4M3),
          DataType.FLOAT8_E5M2, byBits(DataType.FLOAT8_E5M2));

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
      default -> BY_BITS.get(type).get((int) bits);
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
      default -> nearest(SMALL_FLOATS.get(type), value);
    };
  }

  static int nearest(DataType type, BigDecimal value) {
    return nearest(SMALL_FLOATS.get(type), value);
  }

  private static int nearest(TreeMap<BigDecimal, Integer> values, BigDecimal value) {
    Map.Entry<BigDecimal, Integer> below = values.floorEntry(value);
    Map.Entry<BigDecimal, Integer> above = values.ceilingEntry(value);
    int order = value.subtract(below.getKey()).compareTo(above.getKey().subtract(value));
    if (order == 0) {
      return (below.getValue() & 1) == 0 ? below.getValue() : above.getValue();
    }
    return order < 0 ? below.getValue() : above.getValue();
  }

  private static Map<Integer, BigDecimal> byBits(DataType type) {
    Map<Integer, BigDecimal> values = new HashMap<>();
    SMALL_FLOATS.get(type).forEach((value, bits) -> values.put(bits, value));
    return values;
  }

  /** All finite values of a format by their bits; zero with the bits of the positive one. */
  private static TreeMap<BigDecimal, Integer> values(
      int exponentBits, int fractionBits, int end, int sign) {
    TreeMap<BigDecimal, Integer> values = new TreeMap<>();
    int bias = (1 << (exponentBits - 1)) - 1;
    for (int bits = 0; bits < end; bits++) {
      int exponent = Math.max(1, bits >> fractionBits);
      int hidden = bits >> fractionBits == 0 ? 0 : 1 << fractionBits;
      int units = hidden + (bits & ((1 << fractionBits) - 1));
      double value = Math.scalb((double) units, exponent - bias - fractionBits);
      values.put(new BigDecimal(value), bits);
      if (bits != 0) {
        values.put(new BigDecimal(-value), bits | sign);
      }
    }
    return values;
  }
}
