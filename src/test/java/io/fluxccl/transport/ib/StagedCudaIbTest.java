package io.fluxccl.transport.ib;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;

/** Memory of emulated GPUs over real queue pairs, staged in pinned memory on both sides. */
@EmulatedGpus
@RequiresRdma
class StagedCudaIbTest extends StagedIbConnectionContract {
  StagedCudaIbTest() {
    super(IbRanks::stagedOnGpus);
  }
}
