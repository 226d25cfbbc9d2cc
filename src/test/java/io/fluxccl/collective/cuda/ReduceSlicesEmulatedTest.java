// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Reductions of several times the scratch size. They also run with blocks in random order, because
 * blocks in lockstep would hide races between slices.
 */
@EmulatedGpus
@Tag("any-order")
class ReduceSlicesEmulatedTest {
  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 3})
  void shouldReduceInSlices(int nRanks) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      new ReduceContract("staggered-staged", false).check(ranks, List.of(70_003), 20);
    }
  }
}
