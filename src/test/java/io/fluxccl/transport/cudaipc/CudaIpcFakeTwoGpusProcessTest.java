// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.FakeCuda;

/** Each process on a fake GPU of its own. */
@FakeCuda
class CudaIpcFakeTwoGpusProcessTest extends CudaIpcProcessContract {
  @Override
  int gpuOf(int rank) {
    return rank;
  }
}
