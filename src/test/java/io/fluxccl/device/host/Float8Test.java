// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import java.math.BigDecimal;
import java.math.MathContext;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

@net.jqwik.api.Tag("jdk")
class Float8Test {
  private static final MathContext DIGITS = new MathContext(60);
  private static final int VALUES = 256;

  static Stream<Arguments> formatsAndOps() {
    return Stream.of(Float8.values())
        .flatMap(format -> Stream.of(ReduceOp.values()).map(op -> Arguments.of(format, op)));
  }

  private static DataType type(Float8 format) {
    return format == Float8.E4M3 ? DataType.FLOAT8_E4M3 : DataType.FLOAT8_E5M2;
  }

  /** Straight from the definition. */
  private static double exact(Float8 format, int bits) {
    double sign = (bits & 0x80) == 0 ? 1 : -1;
    int magnitude = bits & 0x7f;
    if (format == Float8.E4M3) {
      if (magnitude == 0x7f) {
        return Double.NaN;
      }
      int exponent = magnitude >> 3;
      int fraction = magnitude & 7;
      return exponent == 0
          ? sign * fraction * Math.pow(2, -9)
          : sign * (8 + fraction) * Math.pow(2, exponent - 10);
    }
    int exponent = magnitude >> 2;
    int fraction = magnitude & 3;
    if (exponent == 31) {
      return fraction == 0 ? sign * Double.POSITIVE_INFINITY : Double.NaN;
    }
    return exponent == 0
        ? sign * fraction * Math.pow(2, -16)
        : sign * (4 + fraction) * Math.pow(2, exponent - 17);
  }

  private static int largest(Float8 format) {
    return format == Float8.E4M3 ? 0x7e : 0x7b;
  }

  private static boolean isNaN(Float8 format, int bits) {
    return Double.isNaN(exact(format, bits));
  }

  private record Magnitude(Float8 format, BigDecimal value) {}

  /** Cached nearest values by magnitude, because most pairs repeat. */
  private static final Map<Magnitude, Integer> NEAREST = new ConcurrentHashMap<>();

  /** Returns the nearest value; ties go to even bits. */
  private static int nearest(Float8 format, BigDecimal value, boolean negative) {
    Magnitude magnitude = new Magnitude(format, value.abs().stripTrailingZeros());
    return (negative ? 0x80 : 0)
        | NEAREST.computeIfAbsent(magnitude, of -> nearest(of.format(), of.value()));
  }

  /** Returns the nearest of all finite values. */
  private static int nearest(Float8 format, BigDecimal magnitude) {
    int best = 0;
    for (int bits = 1; bits <= largest(format); bits++) {
      BigDecimal error = magnitude.subtract(new BigDecimal(exact(format, bits))).abs();
      int compared = error.compareTo(magnitude.subtract(new BigDecimal(exact(format, best))).abs());
      if (compared < 0 || compared == 0 && (bits & 1) == 0) {
        best = bits;
      }
    }
    return best;
  }

  @ParameterizedTest
  @EnumSource
  void shouldConvertAllBitsExactlyInBothDirections(Float8 format) {
    for (int bits = 0; bits < VALUES; bits++) {
      double expected = exact(format, bits);
      float value = format.toFloat((byte) bits);
      int back = format.fromFloat(value) & 0xff;
      if (Double.isNaN(expected)) {
        assertThat(value).isNaN();
        assertThat(back).isEqualTo(0x7f);
      } else {
        assertThat(Double.doubleToRawLongBits(value))
            .as("0x%02x", bits)
            .isEqualTo(Double.doubleToRawLongBits(expected));
        assertThat(back)
            .isEqualTo(Double.isInfinite(expected) ? bits & 0x80 | largest(format) : bits);
      }
    }
  }

  @Test
  void shouldConvertTheLimitsOfTheFormats() {
    assertThat(Float8.E4M3.toFloat((byte) 0x7e)).isEqualTo(448f);
    assertThat(Float8.E5M2.toFloat((byte) 0x7b)).isEqualTo(57344f);
    assertThat(Float8.E4M3.fromFloat(1e9f)).isEqualTo((byte) 0x7e);
    assertThat(Float8.E4M3.fromFloat(-464.1f)).isEqualTo((byte) 0xfe);
    assertThat(Float8.E5M2.fromFloat(Float.NEGATIVE_INFINITY)).isEqualTo((byte) 0xfb);
    assertThat(Float8.E5M2.fromFloat(Float.NaN)).isEqualTo((byte) 0x7f);
    assertThat(Float8.E5M2.toFloat((byte) 0xfc)).isEqualTo(Float.NEGATIVE_INFINITY);
  }

  @Property(tries = 3000)
  void shouldRoundAnyFloatToTheNearestValue(@ForAll int bits) {
    float value = Float.intBitsToFloat(bits);
    for (Float8 format : Float8.values()) {
      int actual = format.fromFloat(value) & 0xff;
      if (Float.isNaN(value)) {
        assertThat(isNaN(format, actual)).isTrue();
      } else if (Float.isInfinite(value)) {
        assertThat(actual & 0x7f).isEqualTo(largest(format));
      } else {
        assertThat(actual)
            .as("%s of %s", format, value)
            .isEqualTo(nearest(format, new BigDecimal(value), bits < 0));
      }
    }
  }

  /** Combines all pairs of values in one call and compares them with exact arithmetic. */
  @ParameterizedTest
  @MethodSource("formatsAndOps")
  void shouldCombineEveryPairAsExactArithmeticRoundedOnce(Float8 format, ReduceOp op) {
    int count = VALUES * VALUES;
    ByteBuffer a = ByteBuffer.allocateDirect(count);
    ByteBuffer b = ByteBuffer.allocateDirect(count);
    ByteBuffer out = ByteBuffer.allocateDirect(count);
    for (int i = 0; i < count; i++) {
      a.put(i, (byte) (i >> 8));
      b.put(i, (byte) i);
    }
    long[] sources = {BufferUtil.address(a), BufferUtil.address(b)};
    long[] targets = {BufferUtil.address(out)};
    new HostReduction().reduce(type(format), op, sources, 2, targets, 1, count, 2);
    for (int i = 0; i < count; i++) {
      int actual = out.get(i) & 0xff;
      Integer expected = expected(format, op, i >> 8, i & 0xff);
      boolean right = expected == null ? isNaN(format, actual) : actual == expected;
      if (!right) {
        assertThat(actual)
            .as("%s of 0x%02x and 0x%02x in %s", op, i >> 8, i & 0xff, format)
            .isEqualTo(expected);
      }
    }
  }

  /** Returns the bits, or null for NaN. */
  private static Integer expected(Float8 format, ReduceOp op, int aBits, int bBits) {
    double a = exact(format, aBits);
    double b = exact(format, bBits);
    // Exact in a double: the formats span at most 34 binary places, products of them 68 with 8
    // significant bits. Only what infinities and signs of zero give is taken from it.
    double inDouble =
        switch (op) {
          case PROD -> a * b;
          case MIN -> Math.min(a, b);
          case MAX -> Math.max(a, b);
          case SUM -> a + b;
          case AVG -> (a + b) / 2;
        };
    if (Double.isNaN(inDouble)) {
      return null;
    }
    boolean negative = Double.doubleToRawLongBits(inDouble) < 0;
    if (Double.isInfinite(inDouble)) {
      return (negative ? 0x80 : 0) | largest(format);
    }
    if (op == ReduceOp.MIN || op == ReduceOp.MAX) {
      return nearest(format, new BigDecimal(inDouble), negative); // the other may be infinite
    }
    BigDecimal x = new BigDecimal(a);
    BigDecimal y = new BigDecimal(b);
    BigDecimal value =
        switch (op) {
          case PROD -> x.multiply(y);
          case AVG -> x.add(y).divide(BigDecimal.valueOf(2), DIGITS);
          default -> x.add(y);
        };
    return nearest(format, value, negative);
  }
}
