// A ring: every rank computes a result and sends it to the next rank's memory.
//
// memory: this rank's result in its first half; what the previous rank sends in its second.
#include <fluxccl/fluxccl.cuh>

#include "../common/work.cuh"

using namespace fluxccl;

namespace {

// The whole grid computes size bytes of the result, from offset on.
__device__ void computeTile(uint4* memory, uint64_t offset, uint64_t size, const work::Work& work) {
  const uint64_t end = (offset + size) / sizeof(uint4);
  for (uint64_t i = offset / sizeof(uint4) + blockIdx.x * blockDim.x + threadIdx.x; i < end;
       i += gridDim.x * blockDim.x) {
    memory[i] = work::compute(work, static_cast<uint32_t>(i * work::kElements));
  }
}

// True for one thread of the grid: thread 0 of the block that comes last. It may then speak for what
// all have written before. Called by all threads; arrived is 0 before and after.
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

// Computes tile by tile; a tile that is done is handed to the proxy, which sends it while all go on
// with the next one. arrived: a zeroed word a tile.
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
        // The result may be computed anew when this kernel has ended.
        next.putWithSignalAndFlush(bytes + offset, offset, size);
      }
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    // As many signals as tiles. None comes after an abort, which the host hears of as well.
    while (tile > 0 && previous.wait()) {
      --tile;
    }
  }
}

// One after the other, first half.
extern "C" __global__ void compute(uint4* memory, int64_t bytes, work::Work work) {
  computeTile(memory, 0, bytes, work);
}

// Second half, for one thread.
extern "C" __global__ void communicate(ProxyChannel next, Host2DeviceSemaphore previous,
                                       int64_t bytes) {
  next.putWithSignalAndFlush(bytes, 0, bytes);
  previous.wait();
}
