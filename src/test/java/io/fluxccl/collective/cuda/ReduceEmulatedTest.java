// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Every algorithm of the family, with its kernels on the CPU. */
@EmulatedGpus
class ReduceEmulatedTest {
  private final Map<Integer, int[]> results = new ConcurrentHashMap<>();

  @ParameterizedTest(name = "{0} on {1} ranks")
  @CsvSource({
    "one-shot-ll8, 2",
    "one-shot-ll8, 3",
    "one-shot-ll128, 2",
    "one-shot-ll128, 4",
    "one-shot-sentinel, 2",
    "one-shot-sentinel, 3",
    "two-shots-ll8, 2",
    "two-shots-ll8, 3",
    "two-shots-ll128, 2",
    "two-shots-ll128, 3",
    "two-shots-ll128, 8",
    "two-shots-sentinel, 2",
    "two-shots-sentinel, 4",
    "two-shots-sentinel, 8",
    "staggered-staged, 2",
    "staggered-staged, 3",
    "staggered-staged, 8",
  })
  void shouldReduceWhateverTheTypeOperationAndPlace(String algorithm, int nRanks) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      new ReduceContract(algorithm, false).check(ranks, List.of(1, 7, 130, 1001, 4099), 50);
    }
  }

  /** With a single peer, one-shot algorithms send larger messages than with several. */
  @ParameterizedTest
  @ValueSource(strings = {"one-shot-ll128", "one-shot-sentinel"})
  void shouldReduceLargerMessagesInOneShotBetweenTwoRanks(String algorithm) {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      new ReduceContract(algorithm, false).check(ranks, List.of(130_003), 20);
    }
  }

  @ParameterizedTest(name = "{0} on {1} ranks")
  @CsvSource({
    "two-shots-bulk, 2",
    "two-shots-bulk, 3",
    "two-shots-bulk, 8",
    "staggered-direct, 2",
    "staggered-direct, 3",
    "staggered-direct, 8",
    "copy-engines-reduce, 2",
    "copy-engines-reduce, 3",
  })
  void shouldReduceRegisteredMemory(String algorithm, int nRanks) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      new ReduceContract(algorithm, true).check(ranks, List.of(1, 1001, 40_003), 50);
    }
  }

  /** Several times the scratch size; blocks in lockstep would hide races between slices. */
  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 3})
  @Tag("any-order")
  void shouldReduceInSlices(int nRanks) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      new ReduceContract("staggered-staged", false).check(ranks, List.of(70_003), 20);
    }
  }

  /** Words of ones mark empty slots, so they are the only NaNs that are not sent unchanged. */
  @ParameterizedTest(name = "{1} of {2} on {0} ranks")
  @CsvSource({
    "2, MAX, FLOAT32",
    "3, MAX, FLOAT32",
    "3, MIN, FLOAT64",
    "2, MAX, FLOAT16",
    "2, MIN, FLOAT16",
    "3, MIN, BFLOAT16"
  })
  @OnRanks(value = OnRanks.FIRST_ARGUMENT, seconds = 300)
  void shouldProduceIdenticalNansOnAllRanks(
      int nRanks, ReduceOp op, DataType type, LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, "one-shot-sentinel");
    IntView words = rank.device().allocateInts(300);
    words.put(ones(rank.rank()));
    DeviceBuffer buffer = words.buffer();
    lane(rank, options).allReduce(buffer, buffer, 1200 / type.size(), type, op).block();
    results.put(rank.rank(), words.toArray());
    rank.awaitAll();
    assertThat(words.toArray()).isEqualTo(results.get(0));
  }

  private static int[] ones(int rank) {
    int[] words = {-1, 0x3c00ffff, 0xffff3c00, 0x3c003c00};
    int step = rank == 0 ? 1 : rank == 1 ? 4 : 16;
    return IntStream.range(0, 300).map(i -> words[i / step % 4]).toArray();
  }
}
