package io.fluxccl.device.cuda;

import io.fluxccl.testing.FakeCuda;

@FakeCuda
class CudaMemoryFakeTest extends CudaMemoryContract {
  CudaMemoryFakeTest() {
    super(CudaMemoryKind.PLAIN);
  }
}
