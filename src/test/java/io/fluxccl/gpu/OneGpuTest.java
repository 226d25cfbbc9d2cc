// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Two ranks of one JVM share a GPU. */
@EmulatedGpus
@RequiresGpus
class OneGpuTest {
  @ParameterizedTest
  @EnumSource(Scenario.class)
  void shouldHoldOnOneGpu(Scenario scenario) throws Exception {
    GpuRanks.run(2, 1, scenario);
  }
}
