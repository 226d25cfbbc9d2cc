// SPDX-License-Identifier: Apache-2.0
// Launches that may overlap: each changes the words so that only the next launch in order can
// continue.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

// Lets the next launch begin long before it is complete. Its blocks use other words than the blocks
// of the same index of the previous launch, so that each block depends on the whole previous
// launch.
extern "C" __global__ void tripleInTurn(uint32_t* words, int count, int launch) {
  fluxccl::awaitLaunchBefore();
  fluxccl::letNextLaunchBegin();
  const int block = (blockIdx.x + launch) % gridDim.x;
#if defined(__CUDA_ARCH__)
  const uint64_t begin = fluxccl::globalTimer();
  while (fluxccl::globalTimer() - begin < 20000u * (block + 1) / gridDim.x) {
  }
#endif
  for (int i = block * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    words[i] = 3 * words[i] + launch + i;
  }
}
