// SPDX-License-Identifier: Apache-2.0
// The argument that dispatch and combine share, and the record of the ranks between which each token was sent.
#pragma once

#include "routing.cuh"

namespace fluxccl {
namespace collectives {

// A number to divide by, with 2^32 / by, rounded up; 0 for 1. A division by a variable takes some 40 dependent
// instructions. Exact if the dividend times this number is less than 2^32.
struct Divisor {
  uint32_t by;
  uint32_t inverse;

#if defined(FLUXCCL_CUDA)
  FLUXCCL_DEVICE uint32_t quotient(uint32_t dividend) const {
    return inverse == 0 ? dividend : __umulhi(dividend, inverse);
  }
  FLUXCCL_DEVICE uint32_t remainder(uint32_t dividend) const { return dividend - quotient(dividend) * by; }
#endif
};

// io.fluxccl.collective.cuda.Routes fills it in.
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
  uint32_t sliceTokens;
  // Rows of packets of a token, experts of a rank, and other ranks, 1 or more.
  Divisor rows;
  Divisor expertsPerRank;
  Divisor others;

#if defined(FLUXCCL_CUDA)
  // Words of bits for the tokens of a rank.
  FLUXCCL_DEVICE uint32_t words() const { return (tokens + 31) / 32; }
#endif
};
FLUXCCL_ASSERT_OFFSET(ExpertTask, tokens, 104);
FLUXCCL_ASSERT_SIZE(ExpertTask, 152);

#if defined(FLUXCCL_CUDA)

// The tokens between each pair of ranks, as bits: token t is bit t % 32 of word t / 32, and the words are ordered
// by rank. A copy in shared memory. Dispatch writes it to the plan, from which combine reads it.
struct RoutePlan {
  static constexpr uint32_t kMaxWords = MappedPeers::kMaxRanks * ExpertTask::kMaxWords;

  // This rank's tokens by receiver; the tokens received here by sender; and the place of the first received token
  // of each word.
  uint32_t sent[kMaxWords];
  uint32_t received[kMaxWords];
  uint32_t places[kMaxWords];

  // words: ExpertTask::words().
  FLUXCCL_DEVICE static bool has(const uint32_t* bits, uint32_t words, int rank, uint32_t token) {
    return bits[rank * words + token / 32] >> token % 32 & 1;
  }

  // Returns the place of a token that was received from a rank.
  FLUXCCL_DEVICE uint32_t place(uint32_t words, int from, uint32_t token) const {
    const uint32_t at = from * words + token / 32;
    return places[at] + __popc(received[at] & ((1u << token % 32) - 1));
  }

  // Copies this one to the plan in global memory; all threads of a block call it. words: of all ranks.
  FLUXCCL_DEVICE void save(uint32_t* plan, uint32_t words) const {
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
      plan[i] = sent[i];
      plan[words + i] = received[i];
      plan[2 * words + i] = places[i];
    }
  }

  FLUXCCL_DEVICE void load(const uint32_t* plan, uint32_t words) {
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
      sent[i] = plan[i];
      received[i] = plan[words + i];
      places[i] = plan[2 * words + i];
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
