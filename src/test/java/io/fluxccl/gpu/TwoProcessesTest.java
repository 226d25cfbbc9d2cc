// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.testing.RequiresGpus;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Each rank in a process of its own, with a GPU of its own. */
@RequiresGpus(2)
@Tag("multiprocess")
class TwoProcessesTest {
  private static ScenarioProcesses processes;

  @BeforeAll
  static void start() {
    processes = new ScenarioProcesses(2);
  }

  @AfterAll
  static void kill() {
    processes.close();
  }

  @ParameterizedTest
  @EnumSource(Scenario.class)
  void shouldHoldBetweenProcesses(Scenario scenario) {
    processes.await(scenario);
  }
}
