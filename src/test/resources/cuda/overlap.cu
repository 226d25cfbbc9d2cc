// Launches that may overlap: each makes of the words what only the next in order can go on with.
#include <fluxccl/fluxccl.cuh>

// Lets the next launch begin long before it is done itself. Its blocks take other words than those of the launch
// before, so that each needs all of that.
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
