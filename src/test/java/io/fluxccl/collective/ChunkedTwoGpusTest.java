// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Chunks on two GPUs, a rank on each. */
@RequiresGpus(2)
class ChunkedTwoGpusTest {
  @ParameterizedTest(name = "{0} elements, registered: {1}")
  @CsvSource({"1001,false", "300001,false", "300001,true", "9000001,true"})
  void shouldMatchTheResultOfTheUnchunkedCall(int count, boolean registered) {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      new ChunkedContract(CollectivesOptions.DEFAULT, count, registered).check(ranks);
    }
  }
}
