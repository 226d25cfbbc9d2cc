package io.fluxccl.device.cuda;

import io.fluxccl.testing.RequiresGpus;

@RequiresGpus
class CudaMemoryTest extends CudaMemoryContract {
  CudaMemoryTest() {
    super(CudaMemoryKind.PLAIN);
  }
}
