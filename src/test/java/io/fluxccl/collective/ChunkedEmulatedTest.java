// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Chunks on emulated GPUs. */
@EmulatedGpus
class ChunkedEmulatedTest {
  @ParameterizedTest(name = "{0} of {1}")
  @CsvSource({
    "reduce-scatter, two-shots-ll8, false",
    "reduce-scatter, two-shots-ll128, false",
    "reduce-scatter, staggered-direct, true",
    "reduce-scatter, staggered-staged, false",
    "reduce-scatter, copy-engines-reduce, true",
    "all-gather, exchange-ll8, false",
    "all-gather, exchange-ll128, false",
    "all-gather, exchange-push, true",
    "all-gather, exchange-copy, true",
    "all-to-all, exchange-ll128, false",
    "all-to-all, exchange-push, true",
  })
  void shouldMatchTheResultOfTheUnchunkedCall(
      String collective, String algorithm, boolean registered) {
    Collective which =
        List.of(Collective.values()).stream()
            .filter(one -> one.label().equals(collective))
            .findFirst()
            .orElseThrow();
    CollectivesOptions options = CollectivesOptions.DEFAULT.withAlgorithm(which, algorithm);
    try (LocalRanks ranks = LocalRanks.onGpus(3)) {
      new ChunkedContract(options, 2003, registered).check(ranks, List.of(which));
    }
  }

  @Test
  void shouldMatchTheUnchunkedCallOfEveryCollective() {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      new ChunkedContract(CollectivesOptions.DEFAULT, 1001, false).check(ranks);
    }
  }

  @Test
  void shouldMatchUnchunkedCallsBetweenHosts() {
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 2)) {
      new ChunkedContract(CollectivesOptions.DEFAULT, 1001, false).check(ranks);
    }
  }
}
