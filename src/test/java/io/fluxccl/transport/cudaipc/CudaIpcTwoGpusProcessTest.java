// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.RequiresGpus;

/** Each process on a GPU of its own. */
@RequiresGpus(2)
class CudaIpcTwoGpusProcessTest extends CudaIpcProcessContract {
  @Override
  int gpuOf(int rank) {
    return rank;
  }
}
