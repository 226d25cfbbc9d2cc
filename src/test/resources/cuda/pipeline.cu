// SPDX-License-Identifier: Apache-2.0
// Kernels that the tests of pipelines enqueue between collectives.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

// x[i] = x[i] * factor + summand; any grid and block.
extern "C" __global__ void pipeline_scale(int32_t* x, int64_t count, int32_t factor,
                                          int32_t summand) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    x[i] = x[i] * factor + summand;
  }
}

// Delays work that is enqueued after it until the host stores a value other than 0; one thread.
extern "C" __global__ void pipeline_hold(const uint64_t* gate) {
  // Pairs with the host's store.
  while (loadAcquireSys(gate) == 0) {
    betweenPolls();
  }
}
