// SPDX-License-Identifier: Apache-2.0
// An all-gather fused with a computation: every rank computes one shard of a result that all ranks
// need.
//
// memory: the whole result, shard by shard. channels: by rank, to the others' memories.
#include <fluxccl/fluxccl.cuh>

#include "../common/work.cuh"

using namespace fluxccl;

namespace {

// Computes size bytes of the result, from offset on, with numThreads threads.
__device__ void computeRange(uint4* memory, uint64_t offset, uint64_t size, const work::Work& work,
                             uint32_t threadId, uint32_t numThreads) {
  const uint64_t end = (offset + size) / sizeof(uint4);
  for (uint64_t i = offset / sizeof(uint4) + threadId; i < end; i += numThreads) {
    memory[i] = work::compute(work, static_cast<uint32_t>(i * work::kElements));
  }
}

// Returns true to all threads of the block that arrives last. These may then signal on behalf of
// the whole grid. Called by all threads; arrived is 0 before and after.
__device__ bool isLastBlock(uint32_t* arrived) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    // Releases what this block has written; the last one acquires what the others have released.
    last = fetchAddAcqRelGpu(arrived, 1) == gridDim.x - 1;
    if (last) {
      storeRelaxedGpu(arrived, 0);
    }
  }
  return __syncthreads_or(last) != 0;
}

// Signals every other rank that this rank's shard has arrived, and waits for the signals of the
// others, with one thread for each rank. After an abort no signal arrives; the host is notified of
// the abort as well.
__device__ void exchangeSignals(const SmChannel* channels, uint32_t rank, uint32_t nRanks) {
  if (threadIdx.x < nRanks && threadIdx.x != rank) {
    channels[threadIdx.x].signal();
    channels[threadIdx.x].wait();
  }
}

}  // namespace

// Each block computes a tile and puts it to all other ranks at once, while other blocks compute
// theirs. arrived: one zeroed word.
extern "C" __global__ void fused(const SmChannel* channels, int32_t rank, int32_t nRanks,
                                 uint4* memory, uint32_t* arrived, int64_t shardBytes,
                                 int64_t tileBytes, work::Work work) {
  for (int64_t begin = blockIdx.x * tileBytes; begin < shardBytes;
       begin += gridDim.x * tileBytes) {
    const uint64_t offset = rank * shardBytes + begin;
    const uint64_t size = min(tileBytes, shardBytes - begin);
    computeRange(memory, offset, size, work, threadIdx.x, blockDim.x);
    // A thread puts data that another thread has computed.
    __syncthreads();
    for (int32_t i = 1; i < nRanks; ++i) {
      // Each rank begins with another peer, so that no rank is the target of all others.
      channels[(rank + i) % nRanks].put(offset, offset, size, threadIdx.x, blockDim.x);
    }
  }
  if (isLastBlock(arrived)) {
    exchangeSignals(channels, rank, nRanks);
  }
}

// Computing and sending one after the other: the first half.
extern "C" __global__ void computeShard(int32_t rank, uint4* memory, int64_t shardBytes,
                                        work::Work work) {
  computeRange(memory, rank * shardBytes, shardBytes, work, blockIdx.x * blockDim.x + threadIdx.x,
               gridDim.x * blockDim.x);
}

// The second half. arrived: one zeroed word.
extern "C" __global__ void gather(const SmChannel* channels, int32_t rank, int32_t nRanks,
                                  uint32_t* arrived, int64_t shardBytes) {
  const uint64_t offset = rank * shardBytes;
  for (int32_t i = 1; i < nRanks; ++i) {
    channels[(rank + i) % nRanks].put(offset, offset, shardBytes,
                                      blockIdx.x * blockDim.x + threadIdx.x,
                                      gridDim.x * blockDim.x);
  }
  if (isLastBlock(arrived)) {
    exchangeSignals(channels, rank, nRanks);
  }
}
