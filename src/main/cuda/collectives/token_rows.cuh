// SPDX-License-Identifier: Apache-2.0
// The rows of packets of a token: values, scales, experts and weights, one behind the other.
#pragma once

#include "experts.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.DispatchTask, which fills it in.
struct DispatchTask {
  ExpertTask experts;
  const uint32_t* scales;
  uint32_t* receivedScales;
  uint32_t scaleBytes;
  uint32_t padding;
};
FLUXCCL_ASSERT_SIZE(DispatchTask, 160);

#if defined(FLUXCCL_CUDA)

class TokenRows {
 public:
  FLUXCCL_DEVICE TokenRows(const MappedPeers& peers, const DispatchTask& task)
      : peers_(peers), task_(task.experts), dispatch_(task) {}

  // Loads this lane's values of a row of a token, which are the same for all peers.
  FLUXCCL_DEVICE uint4 valuesOf(uint32_t token, uint32_t row) const {
    const uint8_t* values = peers_.inputs[peers_.rank] + uint64_t{token} * task_.hiddenBytes;
    return loadValues(values, row * Ll128Rows::kPayload + Ll128Rows::offset(laneId()), Ll128Rows::length(laneId()),
                      task_.hiddenBytes);
  }

  // Returns this lane's bytes of a row of a token, as a rank is to receive it, given the values.
  FLUXCCL_DEVICE uint4 completed(uint4 word, uint32_t token, uint32_t row, int peer) const {
    const uint32_t at = row * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
    const uint32_t length = Ll128Rows::length(laneId());
    if (at + length > task_.hiddenBytes) {
      const uint4 more = about(token, static_cast<int32_t>(at) - static_cast<int32_t>(task_.hiddenBytes), peer);
      if (at >= task_.hiddenBytes) {
        word.x = more.x;
        word.y = more.y;
      }
      word.z = more.z;
      word.w = more.w;
    }
    return word;
  }

  // Stores this lane's bytes of a row of a received token at its place.
  FLUXCCL_DEVICE void store(uint32_t place, uint32_t row, const uint4& word) const {
    const uint32_t at = row * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
    storeHalf(place, at, word.x, word.y);
    if (Ll128Rows::length(laneId()) == 16) {
      storeHalf(place, at + 8, word.z, word.w);
    }
  }

 private:
  // Returns four words of what follows the values of a token: scales, experts of the peer, weights. The first may
  // lie before that, at < 0. Lanes choose addresses, not branches: all loads are in flight before the first result
  // is used.
  FLUXCCL_DEVICE uint4 about(uint32_t token, int32_t at, int peer) const {
    const int32_t scales = dispatch_.scaleBytes / 4;
    const int32_t topK = task_.topK;
    const int32_t each = task_.experts / peers_.nRanks;
    uint32_t found[4] = {};
    int32_t ids[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t word = at / 4 + i;
      const int32_t k = word - scales;
      const bool isWeight = k >= topK;
      if (k >= 0 && k < 2 * topK) {
        ids[i] = task_.ids[token * topK + (isWeight ? k - topK : k)];
      }
      if (word >= 0 && (k < 0 || isWeight) && k < 2 * topK) {
        found[i] = *(isWeight ? task_.weights + token * topK + k - topK : dispatch_.scales + token * scales + word);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t k = at / 4 + i - scales;
      if (k >= 0 && k < 2 * topK) {
        const int32_t id = ids[i] - peer * each;
        const bool isThere = id >= 0 && id < each;
        found[i] = k < topK ? static_cast<uint32_t>(isThere ? id : -1) : isThere ? found[i] : 0;
      }
    }
    return make_uint4(found[0], found[1], found[2], found[3]);
  }

  FLUXCCL_DEVICE void storeHalf(uint32_t place, uint32_t at, uint32_t low, uint32_t high) const {
    if (at < task_.hiddenBytes) {
      uint8_t* values = peers_.outputs[peers_.rank] + uint64_t{place} * task_.hiddenBytes;
      *reinterpret_cast<uint2*>(values + at) = make_uint2(low, high);
    } else {
      storeAbout(place, at - task_.hiddenBytes, low);
      storeAbout(place, at + 4 - task_.hiddenBytes, high);
    }
  }

  FLUXCCL_DEVICE void storeAbout(uint32_t place, uint32_t at, uint32_t word) const {
    const uint32_t scales = dispatch_.scaleBytes / 4;
    const uint32_t topK = task_.topK;
    const uint32_t i = at / 4;
    uint32_t* target = i < scales          ? dispatch_.receivedScales + place * scales + i
                       : i < scales + topK ? reinterpret_cast<uint32_t*>(task_.receivedIds) + place * topK + i - scales
                                           : task_.receivedWeights + place * topK + i - scales - topK;
    if (i < scales + 2 * topK) {
      *target = word;
    }
  }

  const MappedPeers& peers_;
  const ExpertTask& task_;
  const DispatchTask& dispatch_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
