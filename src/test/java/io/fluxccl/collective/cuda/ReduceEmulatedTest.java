// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Every algorithm of the family, with its kernels on the CPU. */
@EmulatedGpus
class ReduceEmulatedTest {
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
}
