// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.agrona.BufferUtil.address;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.testing.Rounds;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.DoubleStream;
import java.util.stream.IntStream;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.FloatRange;
import net.jqwik.api.constraints.Scale;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ReductionPatternTest {
  private final HostReduction reduction = new HostReduction();
  private final Random random = new Random(1);

  private List<ByteBuffer> shuffledInputs(ReductionPattern pattern) {
    List<ByteBuffer> inputs = new ArrayList<>();
    IntStream.range(0, pattern.nRanks()).mapToObj(pattern::input).forEach(inputs::add);
    Collections.shuffle(inputs, random);
    return inputs;
  }

  @ParameterizedTest
  @EnumSource
  void shouldExpectTheReductionOfTheHostInAnyOrder(DataType type) {
    for (int nRanks : Rounds.LONG ? new int[] {1, 2, 3, 8, 64} : new int[] {1, 3, 8}) {
      for (ReduceOp op : ReduceOp.values()) {
        ReductionPattern pattern = new ReductionPattern(type, op, nRanks);
        long[] inputs = shuffledInputs(pattern).stream().mapToLong(BufferUtil::address).toArray();
        ByteBuffer result = pattern.expected();
        long[] target = {address(result)};
        reduction.reduce(type, op, inputs, nRanks, target, 1, ReductionPattern.PERIOD, nRanks);
        assertThat(result).as("%s %s of %d ranks", op, type, nRanks).isEqualTo(pattern.expected());
      }
    }
  }

  /** Otherwise a right collective could be called wrong, just for adding in another order. */
  @ParameterizedTest
  @EnumSource(names = {"FLOAT16", "BFLOAT16"})
  void shouldBeExactInEveryOrderIfEachPartialResultIsRounded(DataType type) {
    for (ReduceOp op : List.of(ReduceOp.SUM, ReduceOp.PROD)) {
      ReductionPattern pattern = new ReductionPattern(type, op, 64);
      List<ByteBuffer> inputs = shuffledInputs(pattern);
      long partial = address(inputs.get(0));
      for (ByteBuffer next : inputs.subList(1, inputs.size())) {
        reduction.reduce(type, op, partial, partial, address(next), ReductionPattern.PERIOD);
      }
      assertThat(inputs.get(0)).as("%s", op).isEqualTo(pattern.expected());
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
    assertRefused(() -> new ReductionPattern(DataType.INT8, op, 128), "nRanks=128");
  }

  @Property(tries = 2000)
  void shouldRoundAsTheLibraryDoes(
      @ForAll @FloatRange(min = -65503, max = 65503) @Scale(9) float half,
      @ForAll @FloatRange(min = 0, max = 1e-4f) @Scale(12) float tiny,
      @ForAll @FloatRange(min = -3e38f, max = 3e38f) float brain) {
    for (float value : new float[] {half, tiny}) {
      assertThat((short) ReductionPattern.SmallFloat.HALF.bits(value))
          .isEqualTo(HalfFloat.toFloat16(value));
    }
    assertThat((short) ReductionPattern.SmallFloat.BFLOAT16.bits(brain))
        .isEqualTo(HalfFloat.toBfloat16(brain));
  }

  @Test
  void shouldKeepSignsTiesAndInfinitiesOfSmallFloats() {
    double[] values = {
      -0.0, 1, 1 + 0x1p-11, 1 + 3 * 0x1p-11, 65504, 65520, Double.NEGATIVE_INFINITY, 1e300
    };
    int[] halves = {0x8000, 0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7c00, 0xfc00, 0x7c00};
    assertThat(DoubleStream.of(values).mapToInt(ReductionPattern.SmallFloat.HALF::bits).toArray())
        .isEqualTo(halves);
    assertThat(ReductionPattern.SmallFloat.HALF.bits(Double.MIN_VALUE)).isZero();
    assertThat(ReductionPattern.SmallFloat.BFLOAT16.bits(1.0)).isEqualTo(0x3f80);
  }
}
