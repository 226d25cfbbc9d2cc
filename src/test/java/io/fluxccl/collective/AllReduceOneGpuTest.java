package io.fluxccl.collective;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;

/** One GPU, several ranks on it. */
@RequiresGpus(1)
class AllReduceOneGpuTest extends AllReduceGpuContract {
  @Override
  int nRanks() {
    return 3;
  }

  @Override
  LocalRanks ranks() {
    return LocalRanks.of(3, rank -> CudaDevice.open(0));
  }

  @Override
  LocalRanks twoHosts() {
    return LocalRanks.ofHosts(2, 2, rank -> CudaDevice.open(0));
  }
}
