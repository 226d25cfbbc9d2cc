// SPDX-License-Identifier: Apache-2.0
// The kernels of products that overlap with communication, launched by CudaOverlap.java. Copy engines move the data
// between ranks; cuBLASLt multiplies.

#include <fluxccl/atomics.cuh>
#include <fluxccl/poll.cuh>

#include "collectives/accumulator.cuh"

using namespace fluxccl;

namespace {

using fluxccl::collectives::Accumulator;
using fluxccl::collectives::Bfloat16;
using fluxccl::collectives::Half;

// Words in the memory of every rank:
//
//   uint32 copied[kMaxRanks]   the last operation whose copies the rank of that index has made to this one
//   uint32 number              this rank's operation, from 1 on
//
// A copy engine copies the number to a peer after the rows that it announces.
constexpr int kMaxRanks = 16;
constexpr int kAwaitThreads = 32;
constexpr int kSumThreads = 512;

// The summands of a rank's rows: its own, and those of its peers in slots of its memory, in rank order.
struct Summands {
  const uint4* slots;
  const uint4* own;
  uint64_t words;  // of a slot
  int32_t rank;

  __device__ __forceinline__ uint4 load(int from, uint64_t word) const {
    return from == rank ? own[word] : slots[from * words + word];
  }
};

// kRanks: the number of ranks, whose loads are then in flight together; 0 for any other number.
template <typename T, int kRanks>
__device__ __forceinline__ void addWords(const Summands& from, int nRanks, uint4* out) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < from.words; i += step) {
    Accumulator<T, uint4> sum;
    if (kRanks > 0) {
      uint4 loaded[kRanks > 0 ? kRanks : 1];
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank) {
        loaded[rank] = from.load(rank, i);
      }
      sum.begin(loaded[0]);
#pragma unroll
      for (int rank = 1; rank < kRanks; ++rank) {
        sum.add(loaded[rank]);
      }
    } else {
      sum.begin(from.load(0, i));
      for (int rank = 1; rank < nRanks; ++rank) {
        sum.add(from.load(rank, i));
      }
    }
    out[i] = sum.finish(fluxccl::collectives::ReduceOp::SUM, nRanks);
  }
}

template <typename T>
__device__ __forceinline__ void addAll(const Summands& from, int nRanks, uint4* out) {
  switch (nRanks) {
    case 2:
      return addWords<T, 2>(from, nRanks, out);
    case 4:
      return addWords<T, 4>(from, nRanks, out);
    case 8:
      return addWords<T, 8>(from, nRanks, out);
    default:
      return addWords<T, 0>(from, nRanks, out);
  }
}

}  // namespace

// Waits until peers, a bit for each, have copied their rows. A single warp: it delays no other kernel.
//
// isLast: whether the operation waits no more, and has made its own copies
extern "C" __global__ void __launch_bounds__(kAwaitThreads)
    fluxccl_product_await(uint32_t* words, fluxccl::AbortFlag* abort, uint32_t peers, int isLast) {
  const uint32_t number = words[kMaxRanks];
  const uint32_t peer = threadIdx.x;
  if ((peers >> peer & 1) != 0) {
    // A copy engine's write is complete before it begins the next one, so the rows are there. Numbers may wrap around.
    fluxccl::waitUntil(abort, peer, [&] {
      return static_cast<int32_t>(fluxccl::loadAcquireSys(words + peer) - number) >= 0;
    });
  }
  __syncwarp();
  if (isLast != 0 && threadIdx.x == 0) {
    words[kMaxRanks] = number + 1;
  }
}

// Adds the summands in rank order, and rounds once.
extern "C" __global__ void __launch_bounds__(kSumThreads, 2)
    fluxccl_product_add_half(const uint4* slots, const uint4* own, uint4* out, uint64_t words, int rank,
                             int nRanks) {
  addAll<Half>({slots, own, words, rank}, nRanks, out);
}

extern "C" __global__ void __launch_bounds__(kSumThreads, 2)
    fluxccl_product_add_bfloat16(const uint4* slots, const uint4* own, uint4* out, uint64_t words, int rank,
                                 int nRanks) {
  addAll<Bfloat16>({slots, own, words, rank}, nRanks, out);
}
