// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.RequiresGpus;

/** Both ranks on one GPU. */
@RequiresGpus
class CudaIpcOneGpuTest extends CudaIpcContract {
  @Override
  int gpuOf(int rank) {
    return 0;
  }
}
