// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.testing.FakeCuda;

/** Both ranks on one fake GPU. */
@FakeCuda
class CudaIpcFakeOneGpuTest extends CudaIpcContract {
  @Override
  int gpuOf(int rank) {
    return 0;
  }
}
