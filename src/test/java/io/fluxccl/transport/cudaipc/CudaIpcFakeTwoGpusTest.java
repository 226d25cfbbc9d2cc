// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.FakeCuda;

/** Each rank on a fake GPU of its own. */
@FakeCuda
class CudaIpcFakeTwoGpusTest extends CudaIpcContract {
  @Override
  int gpuOf(int rank) {
    return rank;
  }
}
