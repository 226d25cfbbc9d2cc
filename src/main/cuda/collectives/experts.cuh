// SPDX-License-Identifier: Apache-2.0
// The argument that dispatch and combine share, and the record of who has sent which token where.
#pragma once

#include "routing.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.ExpertTask, which fills it in.
struct ExpertTask {
  static constexpr uint32_t kMaxTokens = 4096;
  static constexpr uint32_t kMaxWords = kMaxTokens / 32;
  static constexpr uint32_t kMaxExperts = 1024;

  RouteArea area;
  // Of this rank's tokens, topK each: experts, or -1; weights by their bits.
  const int32_t* ids;
  const uint32_t* weights;
  // Of the received tokens: experts of this rank, from 0, or -1; weights; rank * tokens + token.
  int32_t* receivedIds;
  uint32_t* receivedWeights;
  int32_t* sources;
  // Tokens from each rank, and for each expert of this rank.
  int32_t* perRank;
  int32_t* perExpert;
  // For combine: RoutePlan.
  uint32_t* plan;
  int32_t tokens;
  int32_t topK;
  int32_t experts;
  int32_t capacity;
  uint32_t hiddenBytes;
  // Rows of packets of a token, and tokens of a slice.
  uint32_t rows;
  uint32_t sliceTokens;
  uint32_t padding;
};
FLUXCCL_ASSERT_OFFSET(ExpertTask, tokens, 104);
FLUXCCL_ASSERT_SIZE(ExpertTask, 136);

#if defined(FLUXCCL_CUDA)

// Which tokens go where, as bits: bit t % 32 of word t / 32. A copy in shared memory; dispatch writes it to the
// plan, from which combine reads it.
struct RoutePlan {
  using Words = uint32_t[MappedPeers::kMaxRanks][ExpertTask::kMaxWords];

  // This rank's tokens by receiver; the tokens received here by sender; and the place of the first received token
  // of each word.
  Words sent;
  Words received;
  Words places;

  FLUXCCL_DEVICE static uint32_t words(const ExpertTask& task) { return (task.tokens + 31) / 32; }

  FLUXCCL_DEVICE static bool has(const Words& bits, int rank, uint32_t token) {
    return bits[rank][token / 32] >> token % 32 & 1;
  }

  // Returns the place of a token that was received from a rank.
  FLUXCCL_DEVICE uint32_t place(int from, uint32_t token) const {
    const uint32_t before = received[from][token / 32] & ((1u << token % 32) - 1);
    return places[from][token / 32] + __popc(before);
  }

  // Copies this one to the plan in global memory; all threads of a block call it.
  FLUXCCL_DEVICE void save(uint32_t* plan, uint32_t words, int nRanks) const {
    const uint32_t each = words * nRanks;
    for (uint32_t i = threadIdx.x; i < each; i += blockDim.x) {
      const uint32_t rank = i / words;
      plan[i] = sent[rank][i % words];
      plan[each + i] = received[rank][i % words];
      plan[2 * each + i] = places[rank][i % words];
    }
  }

  FLUXCCL_DEVICE void load(const uint32_t* plan, uint32_t words, int nRanks) {
    const uint32_t each = words * nRanks;
    for (uint32_t i = threadIdx.x; i < each; i += blockDim.x) {
      const uint32_t rank = i / words;
      sent[rank][i % words] = plan[i];
      received[rank][i % words] = plan[each + i];
      places[rank][i % words] = plan[2 * each + i];
    }
  }
};

// Loads up to 16 bytes of a row of values, whose size and address are multiples of 8; zeros beyond the end.
FLUXCCL_DEVICE uint4 loadValues(const uint8_t* values, uint32_t at, uint32_t length, uint32_t size) {
  const uint2 none = make_uint2(0, 0);
  const uint2 low = at < size ? *reinterpret_cast<const uint2*>(values + at) : none;
  const uint2 high = length == 16 && at + 8 < size ? *reinterpret_cast<const uint2*>(values + at + 8) : none;
  return make_uint4(low.x, low.y, high.x, high.y);
}

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
