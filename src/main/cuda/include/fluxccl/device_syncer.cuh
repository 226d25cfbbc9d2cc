// SPDX-License-Identifier: Apache-2.0
// A barrier for all blocks of a grid, without a cooperative launch.
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "poll.cuh"

namespace fluxccl {

// Lies in device memory, zeroed before its first use; a kernel takes its address. One grid at a time
// uses it. All its blocks must be resident at once, so the GPU's multiprocessors limit their number.
//
// After an aborted sync it is unusable until it is zeroed again.
struct alignas(128) DeviceSyncer {
  // Bit 31 changes with each barrier; below it the number of blocks that have arrived.
  uint32_t state;
  uint32_t padding[31];

#if defined(FLUXCCL_CUDA)

  // Waits for all blocks of a grid of one dimension. Called by all threads of all blocks. Writes of
  // any of them before the call are visible to all of them after it. Returns false, to all threads of
  // the block, if the communicator was aborted; abort may be null.
  FLUXCCL_DEVICE bool sync(AbortFlag* abort) { return sync(blockIdx.x, gridDim.x, abort); }

  // sync for the blocks 0 to numBlocks - 1, as the caller numbers them.
  FLUXCCL_DEVICE bool sync(uint32_t blockId, uint32_t numBlocks, AbortFlag* abort) {
    __syncthreads();
    bool alive = true;
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
      alive = arriveAndWait(blockId, numBlocks, abort);
    }
    return __syncthreads_and(alive) != 0;
  }

  // sync for any numBlocks blocks of the grid, whatever their indices. Costs the last block to arrive
  // one more store. Without a flag it can't be aborted.
  FLUXCCL_DEVICE bool sync(int numBlocks, AbortFlag* abort = nullptr) {
    __syncthreads();
    bool alive = true;
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
      alive = arriveAsAny(static_cast<uint32_t>(numBlocks), abort);
    }
    return __syncthreads_and(alive) != 0;
  }

 private:
  static constexpr uint32_t kPhase = 0x80000000u;

  FLUXCCL_DEVICE bool arriveAsAny(uint32_t numBlocks, AbortFlag* abort) {
    // Releases what this block wrote; the last block to arrive acquires what the others released.
    const uint32_t before = fetchAddAcqRelGpu(&state, 1);
    if ((before & ~kPhase) == numBlocks - 1) {
      // Passes that on to the others, which acquire it in awaitPhaseAfter.
      storeReleaseGpu(&state, (before & kPhase) ^ kPhase);
      return true;
    }
    return awaitPhaseAfter(before, abort);
  }

  FLUXCCL_DEVICE bool arriveAndWait(uint32_t blockId, uint32_t numBlocks, AbortFlag* abort) {
    // All additions of a barrier sum up to kPhase, in whatever order the blocks arrive.
    const uint32_t addition = blockId == 0 ? kPhase - (numBlocks - 1) : 1;
    // Releases what this block wrote; pairs with the acquire of the other blocks below. The last
    // block to arrive also acquires by it what the others released.
    return awaitPhaseAfter(fetchAddAcqRelGpu(&state, addition), abort);
  }

  FLUXCCL_DEVICE bool awaitPhaseAfter(uint32_t before, AbortFlag* abort) {
    LoneSpinWait wait(abort, SpinWait::kNobody);
    while (((loadAcquireGpu(&state) ^ before) & kPhase) == 0) {
      if (!wait.goOn()) {
        return false;
      }
    }
    return true;
  }

#endif  // FLUXCCL_CUDA
};

FLUXCCL_ASSERT_OFFSET(DeviceSyncer, state, 0);
FLUXCCL_ASSERT_SIZE(DeviceSyncer, 128);

}  // namespace fluxccl
