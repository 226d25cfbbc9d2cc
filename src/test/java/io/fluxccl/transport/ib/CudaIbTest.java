package io.fluxccl.transport.ib;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;

/** Memory of emulated GPUs over real queue pairs, registered by its address. */
@EmulatedGpus
@RequiresRdma
class CudaIbTest extends IbConnectionContract {
  CudaIbTest() {
    super(IbRanks::onGpus);
  }
}
