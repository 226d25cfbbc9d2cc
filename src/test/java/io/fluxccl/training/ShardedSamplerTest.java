// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.training.ShardedSampler.Step;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class ShardedSamplerTest {
  private static final int SIZE = 103;
  private static final List<Integer> ALL = IntStream.range(0, SIZE).boxed().toList();

  private static List<Integer> allOf(Step step, int nRanks) {
    return IntStream.range(0, nRanks)
        .flatMap(rank -> Arrays.stream(step.examplesOf(rank)))
        .boxed()
        .toList();
  }

  /** Returns the examples of an epoch; the group has another size in each step. */
  private static List<Integer> epoch(ShardedSampler sampler, long from, int... sizes) {
    List<Integer> seen = new ArrayList<>();
    long position = from;
    for (int i = 0; seen.size() < SIZE; i++) {
      int nRanks = sizes[i % sizes.length];
      Step step = sampler.step(position, nRanks, 3);
      assertThat(step.epoch()).isEqualTo(from / SIZE);
      seen.addAll(allOf(step, nRanks));
      position = step.next();
    }
    assertThat(position).isEqualTo(from + SIZE);
    return seen;
  }

  @Test
  void shouldGiveEachExampleOnceInAnEpoch() {
    ShardedSampler sampler = new ShardedSampler(SIZE, 7);
    assertThat(epoch(sampler, 0, 4)).containsExactlyInAnyOrderElementsOf(ALL);
    assertThat(epoch(sampler, SIZE, 4)).containsExactlyInAnyOrderElementsOf(ALL);
  }

  @Test
  void shouldGiveEachExampleOnceIfTheGroupChangesItsSize() {
    ShardedSampler sampler = new ShardedSampler(SIZE, 7);
    assertThat(epoch(sampler, 0, 4, 3, 1, 5)).isEqualTo(epoch(sampler, 0, 4));
  }

  @Test
  void shouldShuffleEachEpochInAnotherWayThatTheSeedDecides() {
    List<Integer> first = epoch(new ShardedSampler(SIZE, 7), 0, 4);
    assertThat(first).isNotEqualTo(ALL);
    assertThat(epoch(new ShardedSampler(SIZE, 7), 0, 2)).isEqualTo(first);
    assertThat(epoch(new ShardedSampler(SIZE, 7), SIZE, 4)).isNotEqualTo(first);
    assertThat(epoch(new ShardedSampler(SIZE, 8), 0, 4)).isNotEqualTo(first);
  }

  @Test
  void shouldDivideTheLastStepEvenly() {
    ShardedSampler sampler = new ShardedSampler(10, 0);
    Step last = sampler.step(8, 4, 2);
    assertThat(last.next()).isEqualTo(10);
    assertThat(last.ranksWithData()).isEqualTo(2);
    assertThat(IntStream.range(0, 4).map(rank -> last.examplesOf(rank).length))
        .containsExactlyInAnyOrder(0, 1, 0, 1);
    assertThat(sampler.step(10, 4, 2).epoch()).isEqualTo(1);
  }

  @Test
  void shouldRefuseWrongArguments() {
    assertRefused(() -> new ShardedSampler(0, 0), "size=0");
    ShardedSampler sampler = new ShardedSampler(10, 0);
    assertRefused(() -> sampler.step(-1, 4, 2), "position=-1");
    assertRefused(() -> sampler.step(0, 0, 2), "nRanks=0");
    assertRefused(() -> sampler.step(0, 4, 0), "batch=0");
    assertRefused(() -> sampler.step(0, 4, 2).examplesOf(4), "rank=4", "4 ranks");
  }
}
