// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.device.cuda.CudaMemoryKind;
import io.fluxccl.testing.RequiresGpus;

/** Each rank on a GPU of its own, with memory shared by file descriptors. */
@RequiresGpus(2)
class CudaIpcVmmTest extends CudaIpcContract {
  @Override
  int gpuOf(int rank) {
    return rank;
  }

  @Override
  CudaMemoryKind memory() {
    return CudaMemoryKind.VMM;
  }
}
