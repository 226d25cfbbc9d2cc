// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.FakeCuda;

/** Two processes on one fake GPU. */
@FakeCuda
class CudaIpcFakeOneGpuProcessTest extends CudaIpcProcessContract {
  @Override
  int gpuOf(int rank) {
    return 0;
  }
}
