// SPDX-License-Identifier: Apache-2.0
// Kernels with mistakes. Only for emulated GPUs: a real GPU hangs, or does not detect the mistake.
#include <fluxccl/fluxccl.cuh>

extern "C" __global__ void oneThreadStaysAway(uint32_t* word) {
  if (threadIdx.x == 5) {
    while (atomicAdd(word, 0u) == 0) {
      __syncwarp();
    }
  }
  __syncthreads();
}

extern "C" __global__ void touchesNothing(uint32_t* word) { *word = 1; }

extern "C" __global__ void forgetsTheLaunchBefore(uint32_t* word) { atomicAdd(word, 1u); }

extern "C" __global__ void traps() {
  if (blockIdx.x == 1) {
    __trap();
  }
}

extern "C" __global__ void storesBetweenWords(uint32_t* words) {
  *reinterpret_cast<uint2*>(words + 1) = make_uint2(1, 2);
}

extern "C" __global__ void leavesABulkCopyBehind(uint32_t* words) {
  fluxccl::bulkStore(words, fluxccl::dynamicShared(), 16);
  fluxccl::bulkCommit();
}

extern "C" __global__ void __launch_bounds__(64) sixtyFourThreads() {}

namespace {

// Block 0 sends a word to block 1 through memory[0], and signals it through memory[32].
template <class Send>
__device__ void sendAndReceive(uint32_t* memory, Send send) {
  if (threadIdx.x != 0) {
    return;
  }
  if (blockIdx.x == 0) {
    memory[0] = 5;
    send();
  } else {
    while (fluxccl::loadAcquireSys(memory + 32) != 1) {
      fluxccl::betweenPolls();
    }
    memory[64] = memory[0];
  }
}

}  // namespace

extern "C" __global__ void releasesWhatItSends(uint32_t* memory) {
  sendAndReceive(memory, [=] { fluxccl::storeReleaseSys(memory + 32, 1u); });
}

extern "C" __global__ void fencesWhatItSends(uint32_t* memory) {
  sendAndReceive(memory, [=] {
    fluxccl::fenceAcqRelGpu();
    fluxccl::storeRelaxedSys(memory + 32, 1u);
  });
}

extern "C" __global__ void forgetsToRelease(uint32_t* memory) {
  sendAndReceive(memory, [=] { fluxccl::storeRelaxedSys(memory + 32, 1u); });
}

extern "C" __global__ void forgetsTheBarrier(uint32_t* memory) {
  __shared__ uint32_t words[64];
  words[threadIdx.x] = threadIdx.x;
  memory[blockIdx.x * 64 + threadIdx.x] = words[63 - threadIdx.x];
}

extern "C" __global__ void forgetsTheSecondBarrier(uint32_t* memory) {
  __shared__ uint32_t words[64];
  for (uint32_t round = 0; round < 2; ++round) {
    words[threadIdx.x] = threadIdx.x + round;
    __syncthreads();
    memory[blockIdx.x * 64 + threadIdx.x] = words[63 - threadIdx.x];
  }
}

extern "C" __global__ void passesBothBarriers(uint32_t* memory) {
  __shared__ uint32_t words[64];
  for (uint32_t round = 0; round < 2; ++round) {
    words[threadIdx.x] = threadIdx.x + round;
    __syncthreads();
    memory[blockIdx.x * 64 + threadIdx.x] = words[63 - threadIdx.x];
    __syncthreads();
  }
}
