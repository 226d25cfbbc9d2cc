package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;

/** Four GPUs, one rank on each. */
@EmulatedGpus
@RequiresGpus(4)
class AllReduceFourGpusTest extends AllReduceGpuContract {
  @Override
  int nRanks() {
    return 4;
  }

  @Override
  LocalRanks ranks() {
    return LocalRanks.onGpus(4);
  }

  @Override
  LocalRanks twoHosts() {
    return LocalRanks.ofHostsOnGpus(2, 2);
  }
}
