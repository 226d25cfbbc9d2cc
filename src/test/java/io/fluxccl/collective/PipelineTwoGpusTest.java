// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;

/** Two GPUs, one rank on each. */
@RequiresGpus(2)
class PipelineTwoGpusTest extends PipelineContract {
  @Override
  LocalRanks ranks() {
    return LocalRanks.onGpus(2);
  }
}
