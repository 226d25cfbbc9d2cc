package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;

/** Two GPUs, one rank on each. */
@EmulatedGpus
@RequiresGpus(2)
class AllReduceTwoGpusTest extends AllReduceGpuContract {
  @Override
  int nRanks() {
    return 2;
  }

  @Override
  LocalRanks ranks() {
    return LocalRanks.onGpus(2);
  }

  @Override
  LocalRanks twoHosts() {
    return LocalRanks.ofHostsOnGpus(2, 1);
  }
}
