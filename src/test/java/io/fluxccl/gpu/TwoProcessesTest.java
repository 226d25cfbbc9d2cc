// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.testing.RequiresGpus;

/** Each rank in a process of its own, with a GPU of its own. */
@RequiresGpus(2)
class TwoProcessesTest extends ScenarioProcesses {
  TwoProcessesTest() {
    super(2);
  }
}
