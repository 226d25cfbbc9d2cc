// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.device.cuda.CudaMemoryKind;
import io.fluxccl.testing.FakeCuda;

/** Each process on a fake GPU of its own, with memory shared by file descriptors. */
@FakeCuda
class CudaIpcFakeVmmProcessTest extends CudaIpcProcessContract {
  @Override
  int gpuOf(int rank) {
    return rank;
  }

  @Override
  CudaMemoryKind memory() {
    return CudaMemoryKind.VMM;
  }
}
