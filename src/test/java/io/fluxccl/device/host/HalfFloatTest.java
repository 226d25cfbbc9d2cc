// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.HalfFloat;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Test;

@net.jqwik.api.Tag("jdk")
class HalfFloatTest {
  @Test
  void shouldConvertEveryFloat16Exactly() {
    for (int bits = 0; bits <= 0xffff; bits++) {
      float actual = HalfFloat.fromFloat16((short) bits);
      double expected = exactFloat16(bits);
      if (Double.isNaN(expected)) {
        assertThat(actual).as("0x%04x", bits).isNaN();
      } else {
        assertThat(Double.doubleToRawLongBits(actual))
            .as("0x%04x", bits)
            .isEqualTo(Double.doubleToRawLongBits(expected));
      }
    }
  }

  @Test
  void shouldRoundTripEveryFloat16() {
    for (int bits = 0; bits <= 0xffff; bits++) {
      short back = HalfFloat.toFloat16(HalfFloat.fromFloat16((short) bits));
      if (Double.isNaN(exactFloat16(bits))) {
        assertThat(Double.isNaN(exactFloat16(back & 0xffff))).isTrue();
      } else {
        assertThat(back).as("0x%04x", bits).isEqualTo((short) bits);
      }
    }
  }

  @Test
  void shouldRoundToNearestEvenAroundEveryFloat16() {
    for (int bits = 0; bits < 0x7c00; bits++) {
      float low = HalfFloat.fromFloat16((short) bits);
      float high = bits == 0x7bff ? 65536f : HalfFloat.fromFloat16((short) (bits + 1));
      float middle = (float) (((double) low + high) / 2);
      int even = (bits & 1) == 0 ? bits : bits + 1;
      assertRounds(middle, even);
      assertRounds(Math.nextDown(middle), bits);
      assertRounds(Math.nextUp(middle), bits + 1);
    }
    assertRounds(Float.MAX_VALUE, 0x7c00);
    assertRounds(Float.MIN_VALUE, 0);
  }

  private static void assertRounds(float value, int expected) {
    assertThat(HalfFloat.toFloat16(value)).as("%s", value).isEqualTo((short) expected);
    assertThat(HalfFloat.toFloat16(-value)).as("-%s", value).isEqualTo((short) (expected | 0x8000));
  }

  @Property(tries = 20_000)
  void shouldRoundAnyFloatToTheNearestFloat16(@ForAll int bits) {
    float value = Float.intBitsToFloat(bits);
    assertIsNearest(value, HalfFloat.toFloat16(value) & 0xffff);
  }

  private static void assertIsNearest(float value, int half) {
    double got = exactFloat16(half);
    if (Float.isNaN(value)) {
      assertThat(got).isNaN();
      return;
    }
    if (Math.abs(value) >= 65520f) {
      assertThat(got).isEqualTo(Math.signum(value) * Double.POSITIVE_INFINITY);
      return;
    }
    BigDecimal error = new BigDecimal(value).subtract(new BigDecimal(got)).abs();
    for (int other : new int[] {half - 1, half + 1}) {
      double neighbour = exactFloat16(other & 0xffff);
      if ((other & 0x8000) == (half & 0x8000) && !Double.isInfinite(neighbour) && other >= 0) {
        BigDecimal otherError = new BigDecimal(value).subtract(new BigDecimal(neighbour)).abs();
        int compared = error.compareTo(otherError);
        assertThat(compared < 0 || compared == 0 && (half & 1) == 0).isTrue();
      }
    }
  }

  @Property(tries = 20_000)
  void shouldRoundAnyFloatToTheNearestBfloat16(@ForAll int bits) {
    float value = Float.intBitsToFloat(bits);
    short half = HalfFloat.toBfloat16(value);
    if (Float.isNaN(value)) {
      assertThat(HalfFloat.fromBfloat16(half)).isNaN();
      return;
    }
    // In 64 bits, so that rounding above the largest value produces infinity's bits.
    long magnitude = bits & 0x7fffffffL;
    long low = magnitude >>> 16;
    long rest = magnitude & 0xffff;
    long expected = rest > 0x8000 || rest == 0x8000 && (low & 1) == 1 ? low + 1 : low;
    assertThat(half & 0x7fffL).isEqualTo(expected);
    assertThat(half < 0).isEqualTo(bits < 0);
  }

  @Test
  void shouldConvertEveryFloat16InBulkAsOneByOne() {
    assertBulkAgrees(DataType.FLOAT16);
  }

  @Test
  void shouldConvertEveryBfloat16InBulkAsOneByOne() {
    assertBulkAgrees(DataType.BFLOAT16);
  }

  /** x * y for all x and some y: the bulk code must unpack and pack as the scalar code does. */
  private static void assertBulkAgrees(DataType type) {
    boolean isFloat16 = type == DataType.FLOAT16;
    int count = 0x10000;
    ByteBuffer a = direct(2 * count);
    ByteBuffer b = direct(2 * count);
    ByteBuffer c = direct(2 * count);
    HostReduction reduction = new HostReduction();
    for (float factor : new float[] {1f, 1.5f, 0.333f, 3e-5f, 30000f, -0.7f, Float.NaN}) {
      short factorBits = isFloat16 ? HalfFloat.toFloat16(factor) : HalfFloat.toBfloat16(factor);
      for (int i = 0; i < count; i++) {
        a.putShort(2 * i, (short) i);
        b.putShort(2 * i, factorBits);
      }
      reduction.reduce(
          type,
          ReduceOp.PROD,
          BufferUtil.address(c),
          BufferUtil.address(a),
          BufferUtil.address(b),
          count);
      for (int i = 0; i < count; i++) {
        float x = isFloat16 ? HalfFloat.fromFloat16((short) i) : HalfFloat.fromBfloat16((short) i);
        float y =
            isFloat16 ? HalfFloat.fromFloat16(factorBits) : HalfFloat.fromBfloat16(factorBits);
        short expected = isFloat16 ? HalfFloat.toFloat16(x * y) : HalfFloat.toBfloat16(x * y);
        short actual = c.getShort(2 * i);
        boolean bothNaN = Float.isNaN(x * y) && isNaN(type, actual);
        if (!bothNaN && actual != expected) {
          throw new AssertionError(
              String.format("%s 0x%04x * %s: 0x%04x, not 0x%04x", type, i, y, actual, expected));
        }
      }
    }
  }

  private static boolean isNaN(DataType type, short bits) {
    return type == DataType.FLOAT16
        ? Double.isNaN(exactFloat16(bits & 0xffff))
        : Float.isNaN(HalfFloat.fromBfloat16(bits));
  }

  private static ByteBuffer direct(int size) {
    return ByteBuffer.allocateDirect(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Straight from the definition. */
  private static double exactFloat16(int bits) {
    double sign = (bits & 0x8000) == 0 ? 1 : -1;
    int exponent = bits >>> 10 & 0x1f;
    int fraction = bits & 0x3ff;
    if (exponent == 31) {
      return fraction == 0 ? sign * Double.POSITIVE_INFINITY : Double.NaN;
    }
    return exponent == 0
        ? sign * fraction * Math.pow(2, -24)
        : sign * (1024 + fraction) * Math.pow(2, exponent - 25);
  }
}
