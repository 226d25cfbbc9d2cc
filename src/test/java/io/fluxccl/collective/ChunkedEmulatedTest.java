// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRanks;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Chunks on emulated GPUs. */
@EmulatedGpus
class ChunkedEmulatedTest {
  @ParameterizedTest(name = "{0} of {1}")
  @CsvSource({
    "REDUCE_SCATTER, two-shots-ll8, false",
    "REDUCE_SCATTER, two-shots-ll128, false",
    "REDUCE_SCATTER, staggered-direct, true",
    "REDUCE_SCATTER, staggered-staged, false",
    "REDUCE_SCATTER, copy-engines-reduce, true",
    "ALL_GATHER, exchange-ll8, false",
    "ALL_GATHER, exchange-ll128, false",
    "ALL_GATHER, exchange-push, true",
    "ALL_GATHER, exchange-copy, true",
    "ALL_TO_ALL, exchange-ll128, false",
    "ALL_TO_ALL, exchange-push, true",
  })
  void shouldMatchTheResultOfTheUnchunkedCall(
      Collective which, String algorithm, boolean registered) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withAlgorithm(which, algorithm);
    try (LocalRanks ranks = LocalRanks.onGpus(3)) {
      new ChunkedContract(options, 2003, registered).check(ranks, which);
    }
  }

  @Test
  void shouldMatchTheUnchunkedCallOfEveryCollective() {
    ChunkedContract calls = new ChunkedContract(CollectivesOptions.DEFAULT, 1001, false);
    try (LocalRanks ofOneHost = LocalRanks.onGpus(2);
        LocalRanks ofTwoHosts = LocalRanks.ofHostsOnGpus(2, 2)) {
      calls.check(ofOneHost);
      calls.check(ofTwoHosts);
    }
  }
}
