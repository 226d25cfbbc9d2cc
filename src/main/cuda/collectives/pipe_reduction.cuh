// SPDX-License-Identifier: Apache-2.0
// Reduces a piece with all threads of a block, from several sources to several targets.
#pragma once

#include "accumulator.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

// sourceOf(i) and targetOf(i) return addresses. `odd` is the OR of those that may not be multiples of 16.
// Sources are combined in their order; an average is divided by `divisor`.
template <typename T, typename SourceOf, typename TargetOf>
FLUXCCL_DEVICE void reducePiece(uint64_t bytes, uint64_t odd, ReduceOp op, int divisor, int nSources,
                                SourceOf sourceOf, int nTargets, TargetOf targetOf) {
  const auto reduce = [&](auto word, uint64_t at) {
    using Word = decltype(word);
    Accumulator<T, Word> result;
    result.begin(*reinterpret_cast<const Word*>(sourceOf(0) + at));
#pragma unroll 1
    for (int i = 1; i < nSources; ++i) {
      result.combine(*reinterpret_cast<const Word*>(sourceOf(i) + at), op);
    }
    const Word value = result.finish(op, divisor);
#pragma unroll 1
    for (int i = 0; i < nTargets; ++i) {
      *reinterpret_cast<Word*>(targetOf(i) + at) = value;
    }
  };
  const uint64_t whole = odd % sizeof(uint4) == 0 ? bytes / sizeof(uint4) * sizeof(uint4) : 0;
  for (uint64_t at = threadIdx.x * sizeof(uint4); at < whole; at += blockDim.x * sizeof(uint4)) {
    reduce(uint4{}, at);
  }
  for (uint64_t at = whole + threadIdx.x * sizeof(T); at < bytes; at += blockDim.x * sizeof(T)) {
    reduce(T{}, at);
  }
}

FLUXCCL_DEVICE uint64_t addressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
