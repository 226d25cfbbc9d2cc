// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ReduceOp;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.stream.IntStream;
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
class SmallFloatTest {
  private static void assertRounds(SmallFloat format, float value) {
    int actual = format.bitsOf(value);
    if (Float.isNaN(value)) {
      assertThat(format.exact(actual)).as("%s of %s", format, value).isNaN();
    } else if (actual != format.nearest(value)) {
      assertThat(actual).as("%s of %s", format, value).isEqualTo(format.nearest(value));
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldConvertAllBitsExactlyInBothDirections(SmallFloat format) {
    for (int bits = 0; bits < 2 * format.sign; bits++) {
      float value = format.toFloat(bits);
      assertThat(Double.doubleToLongBits(value))
          .as("0x%04x", bits)
          .isEqualTo(Double.doubleToLongBits(format.exact(bits)));
      assertRounds(format, value);
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldRoundToNearestEvenAroundTheMiddleOfAllNeighbours(SmallFloat format) {
    for (int magnitude = 0; magnitude <= format.largest; magnitude++) {
      float middle = format.middle(magnitude);
      for (float value : new float[] {middle, Math.nextDown(middle), Math.nextUp(middle)}) {
        assertRounds(format, value);
        assertRounds(format, -value);
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
    assertThat(Float8.E4M3.fromFloat(Float.NaN)).isEqualTo((byte) 0x7f);
    assertThat(Float8.E5M2.fromFloat(Float.NaN)).isEqualTo((byte) 0x7f);
    assertThat(Float8.E5M2.toFloat((byte) 0xfc)).isEqualTo(Float.NEGATIVE_INFINITY);
    assertThat(SmallFloat.FLOAT16.bitsOf(65519f)).isEqualTo(0x7bff);
    assertThat(SmallFloat.FLOAT16.bitsOf(-65520f)).isEqualTo(0xfc00);
    assertThat(SmallFloat.BFLOAT16.bitsOf(Float.MAX_VALUE)).isEqualTo(0x7f80);
  }

  @Property(tries = 20_000)
  void shouldRoundAnyFloatToTheNearestValue(@ForAll int bits) {
    for (SmallFloat format : SmallFloat.values()) {
      assertRounds(format, Float.intBitsToFloat(bits));
    }
  }

  static Stream<Arguments> formatsAndOps() {
    return Stream.of(SmallFloat.values())
        .flatMap(
            format ->
                Stream.of(ReduceOp.values())
                    .filter(op -> format.type.size() == 1 || op == ReduceOp.PROD)
                    .map(op -> Arguments.of(format, op)));
  }

  /** All values with all of 8 bits, or with a few of 16 bits. */
  @ParameterizedTest
  @MethodSource("formatsAndOps")
  void shouldReduceInBulkAsExactArithmeticRoundedOnce(SmallFloat format, ReduceOp op) {
    int values = 2 * format.sign;
    IntStream others =
        format.type.size() == 1
            ? IntStream.range(0, values)
            : Stream.of(1f, 1.5f, 0.333f, 3e-5f, 30000f, -0.7f, Float.NaN).mapToInt(format::bitsOf);
    ByteBuffer a = buffer(format);
    ByteBuffer b = buffer(format);
    ByteBuffer out = buffer(format);
    long[] sources = {BufferUtil.address(a), BufferUtil.address(b)};
    long[] targets = {BufferUtil.address(out)};
    others.forEach(
        other -> {
          for (int i = 0; i < values; i++) {
            format.put(a, i * format.type.size(), i);
            format.put(b, i * format.type.size(), other);
          }
          new HostReduction().reduce(format.type, op, sources, 2, targets, 1, values, 2);
          for (int i = 0; i < values; i++) {
            int actual = format.get(out, i * format.type.size());
            double expected = combine(op, format.exact(i), format.exact(other));
            boolean isRight =
                Double.isNaN(expected)
                    ? Double.isNaN(format.exact(actual))
                    : actual == format.nearest(expected);
            assertThat(isRight)
                .as("%s of 0x%x and 0x%x in %s: 0x%x", op, i, other, format, actual)
                .isTrue();
          }
        });
  }

  private static ByteBuffer buffer(SmallFloat format) {
    return ByteBuffer.allocateDirect(2 * format.sign * format.type.size())
        .order(ByteOrder.LITTLE_ENDIAN);
  }

  /**
   * Exact in a double: formats of 8 bits span at most 34 binary places, products of them 68 with 8
   * significant bits. Products of 16 bits may be below the least float, which rounds them too.
   */
  private static double combine(ReduceOp op, double a, double b) {
    return switch (op) {
      case PROD -> (float) (a * b);
      case MIN -> Math.min(a, b);
      case MAX -> Math.max(a, b);
      case SUM -> a + b;
      case AVG -> (a + b) / 2;
    };
  }
}
