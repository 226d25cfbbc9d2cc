// SPDX-License-Identifier: Apache-2.0
// A ring: every rank computes a result and sends it to the next rank's memory.
//
// memory: this rank's result in the first half, the previous rank's result in the second half.
#include <fluxccl/fluxccl.cuh>

#include "../common/work.cuh"

using namespace fluxccl;

namespace {

// Computes size bytes of the result, from offset on, with the whole grid.
__device__ void computeTile(uint4* memory, uint64_t offset, uint64_t size, const work::Work& work) {
  const uint64_t end = (offset + size) / sizeof(uint4);
  for (uint64_t i = offset / sizeof(uint4) + blockIdx.x * blockDim.x + threadIdx.x; i < end;
       i += gridDim.x * blockDim.x) {
    memory[i] = work::compute(work, static_cast<uint32_t>(i * work::kElements));
  }
}

// Returns true to one thread of the grid: thread 0 of the block that arrives last. It may then
// signal on behalf of all threads. Called by all threads; arrived is 0 before and after.
__device__ bool isLastBlock(uint32_t* arrived) {
  __syncthreads();
  if (threadIdx.x != 0) {
    return false;
  }
  // Releases what this block has written; the last one acquires what the others have released.
  if (fetchAddAcqRelGpu(arrived, 1) != gridDim.x - 1) {
    return false;
  }
  storeRelaxedGpu(arrived, 0);
  return true;
}

}  // namespace

// Computes tile by tile. The proxy sends a complete tile while all threads continue with the next
// one. arrived: one zeroed word for each tile.
extern "C" __global__ void overlapped(ProxyChannel next, Host2DeviceSemaphore previous,
                                      uint4* memory, uint32_t* arrived, int64_t bytes,
                                      int64_t tileBytes, work::Work work) {
  uint32_t tile = 0;
  for (int64_t offset = 0; offset < bytes; offset += tileBytes, ++tile) {
    const uint64_t size = min(tileBytes, bytes - offset);
    computeTile(memory, offset, size, work);
    if (isLastBlock(arrived + tile)) {
      if (offset + tileBytes < bytes) {
        next.putWithSignal(bytes + offset, offset, size);
      } else {
        // The result may be computed again when this kernel has ended.
        next.putWithSignalAndFlush(bytes + offset, offset, size);
      }
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    // There is one signal for each tile. After an abort no signal arrives; the host is notified of
    // the abort as well.
    while (tile > 0 && previous.wait()) {
      --tile;
    }
  }
}

// Computing and sending one after the other: the first half.
extern "C" __global__ void compute(uint4* memory, int64_t bytes, work::Work work) {
  computeTile(memory, 0, bytes, work);
}

// The second half, for one thread.
extern "C" __global__ void communicate(ProxyChannel next, Host2DeviceSemaphore previous,
                                       int64_t bytes) {
  next.putWithSignalAndFlush(bytes, 0, bytes);
  previous.wait();
}
