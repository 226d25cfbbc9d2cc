// SPDX-License-Identifier: Apache-2.0
// The words that test kernels write and expect: they encode the writer, the round and the place.
#pragma once

#include <fluxccl/config.cuh>
#include <fluxccl/ptx.cuh>

namespace pattern {

using fluxccl::uint32_t;
using fluxccl::uint64_t;

__device__ inline uint32_t word(uint32_t writer, uint32_t round, uint64_t index) {
  return (static_cast<uint32_t>(index) * 2654435761u) ^ (round * 40503u + 1) ^ (writer << 28);
}

// Fills bytes, a multiple of 4, with all threads of a grid of one dimension.
__device__ inline void fill(void* memory, uint64_t bytes, uint32_t writer, uint32_t round,
                            uint32_t threadId, uint32_t numThreads) {
  uint32_t* words = static_cast<uint32_t*>(memory);
  for (uint64_t i = threadId; i < bytes / 4; i += numThreads) {
    words[i] = word(writer, round, i);
  }
}

// Returns how many words in this thread's share are wrong.
__device__ inline uint32_t wrong(const void* memory, uint64_t bytes, uint32_t writer,
                                 uint32_t round, uint32_t threadId, uint32_t numThreads) {
  const uint32_t* words = static_cast<const uint32_t*>(memory);
  uint32_t count = 0;
  for (uint64_t i = threadId; i < bytes / 4; i += numThreads) {
    count += words[i] != word(writer, round, i);
  }
  return count;
}

__device__ inline uint64_t nanos() {
  return fluxccl::globalTimer();
}

}  // namespace pattern
