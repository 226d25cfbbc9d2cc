// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Two ranks of one JVM, each on a GPU of its own. */
@EmulatedGpus
@RequiresGpus(2)
class TwoGpusTest {
  @ParameterizedTest
  @EnumSource(Scenario.class)
  void shouldHoldBetweenTwoGpus(Scenario scenario) throws Exception {
    GpuRanks.run(2, 2, scenario);
  }
}
