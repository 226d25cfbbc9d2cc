// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.testing.AllocatedBytes;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

@Tag("jdk")
class HostReductionTest {
  private static final int[] COUNTS = {1, 2, 3, 7, 16, 255, 2047, 2048, 2049, 5001};
  private final HostReduction reduction = new HostReduction();

  static Stream<Arguments> typesAndOps() {
    List<Arguments> all = new ArrayList<>();
    for (DataType type : DataType.values()) {
      for (ReduceOp op : ReduceOp.values()) {
        all.add(Arguments.of(type, op));
      }
    }
    return all.stream();
  }

  @ParameterizedTest
  @MethodSource("typesAndOps")
  void shouldAgreeWithTheReferenceForSeveralSources(DataType type, ReduceOp op) {
    Random random = new Random(type.ordinal() * 31L + op.ordinal());
    for (int count : COUNTS) {
      int nSources = 1 + random.nextInt(5);
      long[] sources = new long[nSources + 1];
      ByteBuffer[] buffers = new ByteBuffer[nSources];
      for (int i = 0; i < nSources; i++) {
        int shift = random.nextInt(9); // any alignment
        buffers[i] = random(type, count, shift, random);
        sources[i] = BufferUtil.address(buffers[i]) + shift;
        buffers[i].position(shift);
        buffers[i] = buffers[i].slice().order(ByteOrder.LITTLE_ENDIAN);
      }
      int length = count * type.size();
      ByteBuffer first = ByteBuffer.allocateDirect(length + 16).order(ByteOrder.LITTLE_ENDIAN);
      ByteBuffer second = ByteBuffer.allocateDirect(length + 16).order(ByteOrder.LITTLE_ENDIAN);
      long[] targets = {BufferUtil.address(first) + 3, BufferUtil.address(second) + 8};

      reduction.reduce(type, op, sources, nSources, targets, 2, count, 3);

      for (int i = 0; i < count; i++) {
        Object expected = ReferenceReduction.reduce(type, op, buffers, nSources, i, 3);
        assertThat(ReferenceReduction.bits(type, first, 3 + i * type.size()))
            .as("%s %s count=%s i=%s", type, op, count, i)
            .isEqualTo(expected);
        assertThat(ReferenceReduction.bits(type, second, 8 + i * type.size())).isEqualTo(expected);
      }
      assertThat(first.get(2)).isZero();
      assertThat(first.get(3 + length)).isZero();
    }
  }

  @ParameterizedTest
  @MethodSource("typesAndOps")
  void shouldReduceInPlaceAndTwoSourcesAsSeveral(DataType type, ReduceOp op) {
    Random random = new Random(op.ordinal());
    int count = 4097;
    ByteBuffer a = random(type, count, 0, random);
    ByteBuffer b = random(type, count, 0, random);
    ByteBuffer expected = ByteBuffer.allocateDirect(a.capacity());
    long[] sources = {BufferUtil.address(a), BufferUtil.address(b)};
    reduction.reduce(type, op, sources, 2, new long[] {BufferUtil.address(expected)}, 1, count, 2);

    reduction.reduce(type, op, sources[0], sources[0], sources[1], count);
    if (op != ReduceOp.AVG || !isSmallFloat(type)) { // sums of these would be rounded twice
      if (op == ReduceOp.AVG) {
        reduction.divide(type, sources[0], count, 2);
      }
      assertThat(a).isEqualTo(expected);
    }
  }

  private static boolean isSmallFloat(DataType type) {
    return type.isFloatingPoint() && type.size() <= 2;
  }

  @Test
  void shouldAllocateNothingOnceATypeWasUsed() {
    ByteBuffer a = random(DataType.FLOAT16, 10_000, 0, new Random(1));
    long[] address = {BufferUtil.address(a)};
    long allocated =
        AllocatedBytes.least(
            10,
            () -> {
              for (int i = 0; i < 100; i++) {
                reduction.reduce(DataType.FLOAT16, ReduceOp.MAX, address, 1, address, 1, 10_000, 1);
              }
            });
    assertThat(allocated).as("bytes of 100 reductions").isLessThan(1_000);
  }

  private static ByteBuffer random(DataType type, int count, int shift, Random random) {
    ByteBuffer buffer =
        ByteBuffer.allocateDirect(shift + count * type.size()).order(ByteOrder.LITTLE_ENDIAN);
    byte[] bytes = new byte[buffer.capacity()];
    random.nextBytes(bytes);
    buffer.put(bytes).clear();
    if (type.isFloatingPoint() && random.nextInt(3) > 0) {
      for (int i = 0; i < count; i++) { // values of a size that sums keep, instead of any bits
        double value = random.nextGaussian();
        int at = shift + i * type.size();
        switch (type) {
          case FLOAT16:
            buffer.putShort(at, HalfFloat.toFloat16((float) value));
            break;
          case BFLOAT16:
            buffer.putShort(at, HalfFloat.toBfloat16((float) value));
            break;
          case FLOAT8_E4M3:
            buffer.put(at, Float8.E4M3.fromFloat((float) value));
            break;
          case FLOAT8_E5M2:
            buffer.put(at, Float8.E5M2.fromFloat((float) value));
            break;
          case FLOAT32:
            buffer.putFloat(at, (float) value);
            break;
          default:
            buffer.putDouble(at, value);
        }
      }
    }
    return buffer;
  }

  /** The definition, element by element. */
  private static final class ReferenceReduction {
    static Object bits(DataType type, ByteBuffer buffer, int at) {
      switch (type) {
        case FLOAT16:
          return canonical(HalfFloat.fromFloat16(buffer.getShort(at)));
        case BFLOAT16:
          return canonical(HalfFloat.fromBfloat16(buffer.getShort(at)));
        case FLOAT8_E4M3:
          return canonical(Float8.E4M3.toFloat(buffer.get(at)));
        case FLOAT8_E5M2:
          return canonical(Float8.E5M2.toFloat(buffer.get(at)));
        case FLOAT32:
          return canonical(buffer.getFloat(at));
        case FLOAT64:
          return Double.doubleToLongBits(buffer.getDouble(at));
        default:
          return integer(type, buffer, at);
      }
    }

    private static int canonical(float value) {
      return Float.floatToIntBits(value);
    }

    static Object reduce(
        DataType type, ReduceOp op, ByteBuffer[] sources, int n, int index, int divisor) {
      int at = index * type.size();
      if (!type.isFloatingPoint()) {
        BigInteger result = integer(type, sources[0], at);
        for (int i = 1; i < n; i++) {
          result = wrap(type, combine(op, result, integer(type, sources[i], at)));
        }
        return op == ReduceOp.AVG ? result.divide(BigInteger.valueOf(divisor)) : result;
      }
      if (type == DataType.FLOAT64) {
        double result = sources[0].getDouble(at);
        for (int i = 1; i < n; i++) {
          result = combine(op, result, sources[i].getDouble(at));
        }
        return Double.doubleToLongBits(op == ReduceOp.AVG ? result / divisor : result);
      }
      float result = floatAt(type, sources[0], at);
      for (int i = 1; i < n; i++) {
        result = combine(op, result, floatAt(type, sources[i], at));
      }
      if (op == ReduceOp.AVG) {
        result /= divisor;
      }
      if (type == DataType.FLOAT16) {
        result = HalfFloat.fromFloat16(HalfFloat.toFloat16(result));
      } else if (type == DataType.BFLOAT16) {
        result = HalfFloat.fromBfloat16(HalfFloat.toBfloat16(result));
      } else if (type == DataType.FLOAT8_E4M3) {
        result = Float8.E4M3.toFloat(Float8.E4M3.fromFloat(result));
      } else if (type == DataType.FLOAT8_E5M2) {
        result = Float8.E5M2.toFloat(Float8.E5M2.fromFloat(result));
      }
      return canonical(result);
    }

    private static float floatAt(DataType type, ByteBuffer buffer, int at) {
      switch (type) {
        case FLOAT16:
          return HalfFloat.fromFloat16(buffer.getShort(at));
        case BFLOAT16:
          return HalfFloat.fromBfloat16(buffer.getShort(at));
        case FLOAT8_E4M3:
          return Float8.E4M3.toFloat(buffer.get(at));
        case FLOAT8_E5M2:
          return Float8.E5M2.toFloat(buffer.get(at));
        default:
          return buffer.getFloat(at);
      }
    }

    private static BigInteger integer(DataType type, ByteBuffer buffer, int at) {
      byte[] bigEndian = new byte[type.size()];
      for (int i = 0; i < bigEndian.length; i++) {
        bigEndian[bigEndian.length - 1 - i] = buffer.get(at + i);
      }
      return type.name().startsWith("U") ? new BigInteger(1, bigEndian) : new BigInteger(bigEndian);
    }

    private static BigInteger wrap(DataType type, BigInteger value) {
      int bits = 8 * type.size();
      BigInteger wrapped = value.mod(BigInteger.ONE.shiftLeft(bits));
      return !type.name().startsWith("U") && wrapped.testBit(bits - 1)
          ? wrapped.subtract(BigInteger.ONE.shiftLeft(bits))
          : wrapped;
    }

    private static BigInteger combine(ReduceOp op, BigInteger a, BigInteger b) {
      switch (op) {
        case PROD:
          return a.multiply(b);
        case MIN:
          return a.min(b);
        case MAX:
          return a.max(b);
        default:
          return a.add(b);
      }
    }

    private static float combine(ReduceOp op, float a, float b) {
      switch (op) {
        case PROD:
          return a * b;
        case MIN:
          return Math.min(a, b);
        case MAX:
          return Math.max(a, b);
        default:
          return a + b;
      }
    }

    private static double combine(ReduceOp op, double a, double b) {
      switch (op) {
        case PROD:
          return a * b;
        case MIN:
          return Math.min(a, b);
        case MAX:
          return Math.max(a, b);
        default:
          return a + b;
      }
    }
  }
}
