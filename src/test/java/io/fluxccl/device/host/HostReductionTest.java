// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.testing.AllocatedBytes;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Random;
import java.util.function.DoubleUnaryOperator;
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
    return Stream.of(DataType.values())
        .flatMap(type -> Stream.of(ReduceOp.values()).map(op -> Arguments.of(type, op)));
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
        ByteBuffer buffer = random(type, count, shift, random).position(shift);
        sources[i] = BufferUtil.address(buffer) + shift;
        buffers[i] = buffer.slice().order(ByteOrder.LITTLE_ENDIAN);
      }
      int length = count * type.size();
      ByteBuffer first = ByteBuffer.allocateDirect(length + 16).order(ByteOrder.LITTLE_ENDIAN);
      ByteBuffer second = ByteBuffer.allocateDirect(length + 16).order(ByteOrder.LITTLE_ENDIAN);
      long[] targets = {BufferUtil.address(first) + 3, BufferUtil.address(second) + 8};

      reduction.reduce(type, op, sources, nSources, targets, 2, count, 3);

      for (int i = 0; i < count; i++) {
        Number expected = Reference.reduce(type, op, buffers, nSources, i, 3);
        assertThat(Reference.get(type, first, 3 + i * type.size()))
            .as("%s %s count=%s i=%s", type, op, count, i)
            .isEqualTo(expected);
        assertThat(Reference.get(type, second, 8 + i * type.size())).isEqualTo(expected);
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
            1000,
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
        Reference.put(type, buffer, shift + i * type.size(), random.nextGaussian());
      }
    }
    return buffer;
  }

  /** The definition, element by element. */
  private static final class Reference {
    static void put(DataType type, ByteBuffer buffer, int at, double value) {
      switch (type) {
        case FLOAT32 -> buffer.putFloat(at, (float) value);
        case FLOAT64 -> buffer.putDouble(at, value);
        default -> {
          SmallFloat format = SmallFloat.of(type).orElseThrow();
          format.put(buffer, at, format.bitsOf((float) value));
        }
      }
    }

    /** Returns a number that equals that of the same element, of which there is one NaN. */
    static Number get(DataType type, ByteBuffer buffer, int at) {
      return type.isFloatingPoint() ? floating(type, buffer, at) : integer(type, buffer, at);
    }

    static Number reduce(
        DataType type, ReduceOp op, ByteBuffer[] sources, int n, int index, int divisor) {
      int at = index * type.size();
      if (!type.isFloatingPoint()) {
        BigInteger result = integer(type, sources[0], at);
        for (int i = 1; i < n; i++) {
          result = wrap(type, combine(op, result, integer(type, sources[i], at)));
        }
        return op == ReduceOp.AVG ? result.divide(BigInteger.valueOf(divisor)) : result;
      }
      DoubleUnaryOperator rounded = type == DataType.FLOAT64 ? x -> x : x -> (float) x;
      double result = floating(type, sources[0], at);
      for (int i = 1; i < n; i++) {
        result = rounded.applyAsDouble(combine(op, result, floating(type, sources[i], at)));
      }
      double reduced = op == ReduceOp.AVG ? rounded.applyAsDouble(result / divisor) : result;
      return SmallFloat.of(type)
          .map(format -> (double) format.toFloat(format.bitsOf((float) reduced)))
          .orElse(reduced);
    }

    private static double floating(DataType type, ByteBuffer buffer, int at) {
      return switch (type) {
        case FLOAT32 -> buffer.getFloat(at);
        case FLOAT64 -> buffer.getDouble(at);
        default -> {
          SmallFloat format = SmallFloat.of(type).orElseThrow();
          yield format.toFloat(format.get(buffer, at));
        }
      };
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
      return switch (op) {
        case PROD -> a.multiply(b);
        case MIN -> a.min(b);
        case MAX -> a.max(b);
        case SUM, AVG -> a.add(b);
      };
    }

    /** Of floats, this is exact: a double has more than twice as many digits. */
    private static double combine(ReduceOp op, double a, double b) {
      return switch (op) {
        case PROD -> a * b;
        case MIN -> Math.min(a, b);
        case MAX -> Math.max(a, b);
        case SUM, AVG -> a + b;
      };
    }
  }
}
