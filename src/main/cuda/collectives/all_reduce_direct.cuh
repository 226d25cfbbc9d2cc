// All-reduce straight on everybody's buffer, for large inputs. Each rank owns a chunk: it reads that chunk from all
// buffers, reduces it in rank order and writes the result to all buffers. Nobody else touches the chunk meanwhile, so
// it works in place and needs no scratch memory.
//
//   meet                             every rank's input is there
//   reduce chunk[rank] of all buffers, into all buffers
//   meet                             every rank's output is there
#pragma once

#include "accumulator.cuh"
#include "mapped_ranks.cuh"

namespace fluxccl {
namespace collectives {

template <typename T, typename Word>
FLUXCCL_DEVICE void reduceIntoAll(const MappedRanks& ranks, uint64_t offset, ReduceOp op) {
  const Word result = reduceWords<T, Word>(ranks.nRanks, op, [&](int rank) {
    return reinterpret_cast<const Word*>(ranks.buffers[rank] + offset);
  });
  // Each rank begins with another, so that they don't all write to one at a time.
  for (int i = 0; i < ranks.nRanks; ++i) {
    const int target = (ranks.rank + i) % ranks.nRanks;
    *reinterpret_cast<Word*>(ranks.buffers[target] + offset) = result;
  }
}

// Whether every rank's buffer begins at a multiple of 16 bytes; a slice need not.
FLUXCCL_DEVICE bool areAligned(const MappedRanks& ranks) {
  uint64_t bits = 0;
  for (int i = 0; i < ranks.nRanks; ++i) {
    bits |= reinterpret_cast<uint64_t>(ranks.buffers[i]);
  }
  return (bits & (sizeof(uint4) - 1)) == 0;
}

// chunkElements is Partition.chunkElements(count, type, nRanks).
template <typename T>
FLUXCCL_DEVICE void allReduceDirect(const MappedRanks& ranks, uint64_t count, uint64_t chunkElements, ReduceOp op) {
  uint32_t epoch = beginEpoch(ranks);
  if (!meet(ranks, MeetingPoint::ENTERED, epoch)) {
    return;
  }
  uint64_t begin = min(chunkElements * ranks.rank, count);
  uint64_t end = min(begin + chunkElements, count);
  uint64_t thread = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
  uint64_t threads = gridDim.x * static_cast<uint64_t>(blockDim.x);
  constexpr uint64_t kPerWord = sizeof(uint4) / sizeof(T);
  uint64_t words = areAligned(ranks) ? (end - begin) / kPerWord : 0;
  for (uint64_t i = thread; i < words; i += threads) {
    reduceIntoAll<T, uint4>(ranks, begin * sizeof(T) + i * sizeof(uint4), op);
  }
  for (uint64_t i = begin + words * kPerWord + thread; i < end; i += threads) {
    reduceIntoAll<T, T>(ranks, i * sizeof(T), op);
  }
  if (meet(ranks, MeetingPoint::LEFT, epoch)) {
    endEpoch(ranks, epoch);
  }
}

}  // namespace collectives
}  // namespace fluxccl
