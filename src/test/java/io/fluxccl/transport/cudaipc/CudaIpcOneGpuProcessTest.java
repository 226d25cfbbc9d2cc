// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.RequiresGpus;

/** Two processes on one GPU. */
@RequiresGpus
class CudaIpcOneGpuProcessTest extends CudaIpcProcessContract {
  @Override
  int gpuOf(int rank) {
    return 0;
  }
}
