// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.testing.Rounds;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.DoubleStream;
import java.util.stream.IntStream;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.DoubleRange;
import net.jqwik.api.constraints.Scale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ReductionPatternTest {
  /** Distance of the elements that are checked with exact arithmetic, which is slow. */
  private static final int STRIDE = Rounds.LONG ? 3001 : 17_011;

  @ParameterizedTest
  @EnumSource
  void shouldExpectResultsOfExactArithmetic(DataType type) {
    for (int nRanks : Rounds.LONG ? new int[] {1, 2, 3, 8, 64} : new int[] {1, 3, 8}) {
      for (ReduceOp op : ReduceOp.values()) {
        ReductionPattern pattern = new ReductionPattern(type, op, nRanks);
        List<ByteBuffer> inputs = IntStream.range(0, nRanks).mapToObj(pattern::input).toList();
        ByteBuffer expected = pattern.expected();
        for (int i = 0; i < ReductionPattern.PERIOD; i += STRIDE) {
          int index = i;
          List<Long> values =
              inputs.stream().map(input -> ExactReduction.read(input, index, type)).toList();
          assertThat(ExactReduction.read(expected, i, type))
              .as("%s %s of %d ranks, element %d", op, type, nRanks, i)
              .isEqualTo(ExactReduction.reduce(values, type, op));
        }
      }
    }
  }

  /** Otherwise a right collective could be called wrong, just for adding in another order. */
  @ParameterizedTest
  @EnumSource(names = {"FLOAT16", "BFLOAT16"})
  void shouldBeExactInEveryOrderOfTheRanks(DataType type) {
    int nRanks = 64;
    Random random = new Random(1);
    for (ReduceOp op : List.of(ReduceOp.SUM, ReduceOp.PROD)) {
      ReductionPattern pattern = new ReductionPattern(type, op, nRanks);
      List<Integer> order = new ArrayList<>(IntStream.range(0, nRanks).boxed().toList());
      for (int i = 0; i < ReductionPattern.PERIOD; i += STRIDE) {
        Collections.shuffle(order, random);
        double partial = pattern.real(order.get(0), i);
        for (int rank : order.subList(1, nRanks)) {
          double value = pattern.real(rank, i);
          partial = op == ReduceOp.SUM ? partial + value : partial * value;
          int bits = ExactReduction.nearest(type, new BigDecimal(partial));
          assertThat(ExactReduction.value(type, bits)).isEqualTo(partial);
        }
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldGiveRanksDifferentData(DataType type) {
    ReductionPattern pattern = new ReductionPattern(type, ReduceOp.SUM, 2);

    assertThat(pattern.input(0)).isNotEqualTo(pattern.input(1));
    assertThat(pattern.input(0)).isEqualTo(pattern.input(0)).isNotEqualTo(pattern.expected());
  }

  @ParameterizedTest
  @EnumSource
  void shouldRefuseMoreRanksThanItsDataIsExactFor(ReduceOp op) {
    assertThatThrownBy(() -> new ReductionPattern(DataType.INT8, op, 128))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("nRanks=128");
  }

  @Property(tries = 2000)
  void shouldRoundToNearestEven(
      @ForAll @DoubleRange(min = -65503, max = 65503) @Scale(9) double half,
      @ForAll @DoubleRange(min = 0, max = 1e-4) @Scale(12) double tiny,
      @ForAll @DoubleRange(min = -3e38, max = 3e38) double brain) {
    assertRounded(SmallFloat.HALF.bits(half), DataType.FLOAT16, half);
    assertRounded(SmallFloat.HALF.bits(tiny), DataType.FLOAT16, tiny);
    assertRounded(SmallFloat.BFLOAT16.bits(brain), DataType.BFLOAT16, brain);
  }

  private static void assertRounded(int bits, DataType type, double exact) {
    assertThat(bits == 0x8000 ? 0 : bits)
        .isEqualTo(ExactReduction.nearest(type, new BigDecimal(exact)));
  }

  @Test
  void shouldKeepSignsTiesAndInfinitiesOfSmallFloats() {
    double[] values = {
      -0.0, 1, 1 + 0x1p-11, 1 + 3 * 0x1p-11, 65504, 65520, Double.NEGATIVE_INFINITY, 1e300
    };
    int[] halves = {0x8000, 0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7c00, 0xfc00, 0x7c00};
    assertThat(DoubleStream.of(values).mapToInt(SmallFloat.HALF::bits).toArray()).isEqualTo(halves);
    assertThat(SmallFloat.HALF.bits(Double.MIN_VALUE)).isZero();
    assertThat(SmallFloat.BFLOAT16.bits(1.0)).isEqualTo(0x3f80);
  }
}
