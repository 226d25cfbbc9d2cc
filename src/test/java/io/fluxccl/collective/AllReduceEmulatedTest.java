package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRanks;

/** Three GPUs, which no machine at hand has: kernels on the CPU, one rank on each. */
@EmulatedGpus
class AllReduceEmulatedTest extends AllReduceGpuContract {
  @Override
  int nRanks() {
    return 3;
  }

  @Override
  LocalRanks ranks() {
    return LocalRanks.onGpus(3);
  }

  @Override
  LocalRanks twoHosts() {
    return LocalRanks.ofHostsOnGpus(3, 1);
  }
}
