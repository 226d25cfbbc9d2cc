// SPDX-License-Identifier: Apache-2.0
// The barrier of a grid.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

// Every block writes its word of values, passes the barrier, and checks all words; rounds times.
// syncer: zeroed; values: one word for each block. wrong[0] counts words that arrived late; done[0]
// counts blocks that completed.
extern "C" __global__ void syncRounds(DeviceSyncer* syncer, AbortFlag* abort, uint32_t* values,
                                      int32_t rounds, uint32_t* wrong, uint32_t* done) {
  for (int32_t i = 1; i <= rounds; ++i) {
    const uint32_t round = static_cast<uint32_t>(i);
    // Not always the thread that waits.
    if (threadIdx.x == round % blockDim.x) {
      values[blockIdx.x] = round;
    }
    if (!syncer->sync(abort)) {
      return;
    }
    for (uint32_t block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
      if (values[block] != round) {
        atomicAdd(wrong, 1u);
      }
    }
    // No block writes the next round's word while others check this round's.
    if (!syncer->sync(abort)) {
      return;
    }
  }
  if (threadIdx.x == 0) {
    atomicAdd(done, 1u);
  }
}
