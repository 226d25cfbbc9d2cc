// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.RequiresGpus;

/** Each rank on a GPU of its own. */
@RequiresGpus(2)
class CudaIpcTwoGpusTest extends CudaIpcContract {
  @Override
  int gpuOf(int rank) {
    return rank;
  }
}
