// The barrier of a grid.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

// Every block writes its word of values, meets the others, and looks at all words; rounds times.
// syncer: zeroed; values: a word a block. wrong[0] counts words that came late; done[0] counts blocks
// that came through.
extern "C" __global__ void syncRounds(DeviceSyncer* syncer, AbortFlag* abort, uint32_t* values,
                                      int32_t rounds, uint32_t* wrong, uint32_t* done) {
  for (int32_t i = 1; i <= rounds; ++i) {
    const uint32_t round = static_cast<uint32_t>(i);
    // Not always by the thread that does the waiting.
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
    // Nobody writes the next round's while others look.
    if (!syncer->sync(abort)) {
      return;
    }
  }
  if (threadIdx.x == 0) {
    atomicAdd(done, 1u);
  }
}
