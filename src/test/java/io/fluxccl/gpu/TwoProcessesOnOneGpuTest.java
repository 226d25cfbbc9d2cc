// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.testing.RequiresGpus;

/** Each rank in a process of its own, on one GPU, which their kernels take turns on. */
@RequiresGpus
class TwoProcessesOnOneGpuTest extends ScenarioProcesses {
  TwoProcessesOnOneGpuTest() {
    super(1);
  }
}
