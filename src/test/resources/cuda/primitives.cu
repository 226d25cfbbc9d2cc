// SPDX-License-Identifier: Apache-2.0
// Kernels that check what CUDA and ptx.cuh guarantee about cooperating threads: wrong[0] counts
// violations, done[0] the threads that reached the end.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

namespace {

constexpr unsigned kAll = 0xffffffffu;

__device__ void check(bool holds, uint32_t* wrong) {
  if (!holds) {
    atomicAdd(wrong, 1u);
  }
}

}  // namespace

// Whole warps.
extern "C" __global__ void warps(uint32_t* wrong, uint32_t* done) {
  const uint32_t lane = laneId();
  check(lane == threadIdx.x % 32, wrong);
  for (uint32_t round = 0; round < 50; ++round) {
    check(__shfl_sync(kAll, lane * 3 + round, 7) == 7 * 3 + round, wrong);
    check(__shfl_sync(kAll, 5.0 + lane, 3, 8) == 5.0 + lane / 8 * 8 + 3, wrong);
    check(__shfl_up_sync(kAll, lane, 2) == (lane < 2 ? lane : lane - 2), wrong);
    check(__shfl_down_sync(kAll, lane, 30) == (lane < 2 ? lane + 30 : lane), wrong);
    check(__shfl_xor_sync(kAll, static_cast<unsigned long long>(lane) << 40, 16) ==
              static_cast<unsigned long long>(lane ^ 16) << 40,
          wrong);
    check(__ballot_sync(kAll, lane % 3 == round % 3) == 0x49249249u << round % 3, wrong);
    check(__any_sync(kAll, lane == round % 32) != 0, wrong);
    check(__all_sync(kAll, lane < 32) != 0 && __all_sync(kAll, lane != 9) == 0, wrong);
    check(__match_any_sync(kAll, lane / 8) == 0xffu << lane / 8 * 8, wrong);
    __syncwarp();
  }
  atomicAdd(done, 1u);
}

// Parts of warps, whose other lanes run other code or have ended.
extern "C" __global__ void partsOfWarps(uint32_t* wrong, uint32_t* done) {
  const uint32_t lane = laneId();
  atomicAdd(done, 1u);
  if (lane >= 24) {
    return;
  }
  const unsigned mine = lane < 10 ? 0x3ffu : 0xfffc00u;
  for (uint32_t round = 0; round < (lane < 10 ? 20 : 35); ++round) {
    check(__shfl_sync(mine, lane + round, lane < 10 ? 9 : 23) == (lane < 10 ? 9 : 23) + round, wrong);
    check(__ballot_sync(mine, 1) == mine, wrong);
    __syncwarp(mine);
  }
  check(__ballot_sync(0xffffffu, lane % 2 == 0) == 0x555555u, wrong);
}

// A whole block, and some of its warps. Each block has its own memory.
extern "C" __global__ void blocks(uint32_t* wrong, uint32_t* done) {
  __shared__ uint32_t words[256];
  __shared__ uint32_t halves[2];
  for (uint32_t round = 0; round < 20; ++round) {
    words[threadIdx.x] = blockIdx.x * 1000 + threadIdx.x + round;
    __syncthreads();
    const uint32_t other = (threadIdx.x + 77) % blockDim.x;
    check(words[other] == blockIdx.x * 1000 + other + round, wrong);
    check(__syncthreads_count(threadIdx.x % 4 == 0) == static_cast<int>(blockDim.x / 4), wrong);
    check(__syncthreads_and(threadIdx.x != round) == 0 && __syncthreads_and(1) != 0, wrong);
    check(__syncthreads_or(threadIdx.x == round) != 0 && __syncthreads_or(0) == 0, wrong);
  }
  // The first half passes data to the second, each at its own barrier.
  const uint32_t half = threadIdx.x / (blockDim.x / 2);
  for (uint32_t round = 0; round < 20; ++round) {
    if (half == 0) {
      if (round != 0) {
        syncBarrier(2, blockDim.x);
      }
      if (threadIdx.x == 0) {
        halves[round % 2] = blockIdx.x + round;
      }
      syncBarrier(3, blockDim.x / 2);
      check(halves[round % 2] == blockIdx.x + round, wrong);
      arriveAtBarrier(1, blockDim.x);
    } else {
      syncBarrier(1, blockDim.x);
      check(halves[round % 2] == blockIdx.x + round, wrong);
      if (round != 19) {
        arriveAtBarrier(2, blockDim.x);
      }
    }
  }
  // Barriers do not wait for threads that have ended.
  if (threadIdx.x % 2 == 0) {
    atomicAdd(done, 1u);
    return;
  }
  check(__syncthreads_count(1) == static_cast<int>(blockDim.x / 2), wrong);
  atomicAdd(done, 1u);
}

// Tiles through shared memory by bulk copies: the values, each one more, from input to output. tile is a multiple of
// 16 bytes, at most 1024.
extern "C" __global__ void bulkCopies(const uint32_t* input, uint32_t* output, uint32_t tiles, uint32_t tile) {
  constexpr uint32_t kStages = 3;
  __shared__ TransactionBarrier full[kStages];
  __shared__ uint4 stageWords[kStages * 64];
  uint8_t* stages = reinterpret_cast<uint8_t*>(stageWords);
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) {
      full[i].init(1);
    }
    fenceBarrierInit();
  }
  __syncthreads();
  const auto load = [&](uint32_t i) {
    full[i % kStages].arriveAndExpect(tile);
    bulkLoad(stages + i % kStages * tile, reinterpret_cast<const uint8_t*>(input) + static_cast<uint64_t>(i) * tile, tile,
             &full[i % kStages]);
  };
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages - 1 && i < tiles; ++i) {
      load(i);
    }
  }
  for (uint32_t i = 0; i < tiles; ++i) {
    while (!full[i % kStages].isOver(i / kStages & 1)) {
      betweenPolls();
    }
    uint32_t* words = reinterpret_cast<uint32_t*>(stages + i % kStages * tile);
    for (uint32_t k = threadIdx.x; k < tile / 4; k += blockDim.x) {
      words[k] += 1;
    }
    fenceBulkShared();
    __syncthreads();
    if (threadIdx.x == 0) {
      bulkStore(reinterpret_cast<uint8_t*>(output) + static_cast<uint64_t>(i) * tile, words, tile);
      bulkCommit();
      if (i + kStages - 1 < tiles) {
        // The stage that is loaded next is the one that was stored before this one.
        bulkWaitRead<1>();
        load(i + kStages - 1);
      }
    }
  }
  if (threadIdx.x == 0) {
    bulkWait<0>();
  }
}

// Two blocks send lines of 128 bytes to and fro; the last word of a line is its flag.
extern "C" __global__ void lines(uint4* memory, uint32_t rounds, AbortFlag* abort, uint32_t* wrong, uint32_t* done) {
  const uint32_t lane = threadIdx.x % 8;
  uint4* out = memory + blockIdx.x * blockDim.x + threadIdx.x;
  const uint4* in = memory + (1 - blockIdx.x) * blockDim.x + threadIdx.x;
  for (uint32_t round = 1; round <= rounds; ++round) {
    const auto send = [&] {
      storeLineRelaxedSys(out, uint4{round * 8 + lane, round, threadIdx.x, lane == 7 ? round : ~round});
    };
    const auto receive = [&] {
      SpinWait wait(abort, -1);
      while (true) {
        __syncwarp();
        const uint4 value = loadLineRelaxedSys(in);
        const bool there = lane == 7 && value.w == round;
        // A warp's lines arrive and are taken together.
        if (__ballot_sync(kAll, there) == 0x80808080u) {
          check(value.x == round * 8 + lane && value.y == round && value.z == threadIdx.x, wrong);
          return true;
        }
        if (__any_sync(kAll, !wait.goOn())) {
          return false;
        }
      }
    };
    if (blockIdx.x == 0) {
      send();
    }
    if (!receive()) {
      return;
    }
    if (blockIdx.x == 1) {
      send();
    }
  }
  atomicAdd(done, 1u);
}

struct Mixed {
  uint8_t byte;
  double number;
  uint8_t bytes[5];
};

// Parameters of all alignments.
extern "C" __global__ void parameters(uint8_t a, double b, uint16_t c, const __grid_constant__ Mixed mixed, uint32_t d,
                                      uint32_t* wrong, uint32_t* done) {
  check(a == 1 && b == 2.5 && c == 3 && mixed.byte == 4 && mixed.number == 5.5 && mixed.bytes[4] == 6 && d == 7, wrong);
  atomicAdd(done, 1u);
}

// All halves as floats, and floats as halves.
extern "C" __global__ void halves(float* floats, const float* from, unsigned short* to, uint32_t count) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t threads = gridDim.x * blockDim.x;
  for (uint32_t i = thread; i < 65536; i += threads) {
    floats[i] = halfToFloat(static_cast<unsigned short>(i));
  }
  for (uint32_t i = thread; i < count; i += threads) {
    to[i] = floatToHalf(from[i]);
  }
}
