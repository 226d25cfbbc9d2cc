// SPDX-License-Identifier: Apache-2.0
// The rows of packets of a token: values, scales, and the topK experts, each with its weight; all in units of 8 bytes.
// The last unit of the scales may be filled up.
#pragma once

#include "experts.cuh"

namespace fluxccl {
namespace collectives {

// io.fluxccl.collective.cuda.Routes fills it in.
struct DispatchTask {
  ExpertTask experts;
  const uint32_t* scales;
  uint32_t* receivedScales;
  uint32_t scaleBytes;
  uint32_t padding;
};
FLUXCCL_ASSERT_SIZE(DispatchTask, 176);

#if defined(FLUXCCL_CUDA)

class TokenRows {
 public:
  FLUXCCL_DEVICE TokenRows(const MappedPeers& peers, const DispatchTask& task)
      : peers_(peers), task_(task.experts), dispatch_(task) {}

  // Loads this lane's bytes of a row of a token, with the experts as all ranks know them.
  FLUXCCL_DEVICE uint4 load(uint32_t token, uint32_t row) const {
    const uint32_t at = row * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
    const uint32_t length = Ll128Rows::length(laneId());
    const uint8_t* values = peers_.inputs[peers_.rank] + uint64_t{token} * task_.hiddenBytes;
    if (at + length <= task_.hiddenBytes) {
      return loadValues(values, at, length, task_.hiddenBytes);
    }
    const uint2 low = at < task_.hiddenBytes ? *reinterpret_cast<const uint2*>(values + at) : about(token, at);
    const uint2 high = length == 16 ? about(token, at + 8) : make_uint2(0, 0);
    return make_uint4(low.x, low.y, high.x, high.y);
  }

  // Returns a word of load() with the experts as one rank numbers them: from 0, or -1 without a weight for another
  // rank's expert.
  FLUXCCL_DEVICE uint4 forRank(uint4 word, uint32_t row, int rank) const {
    const uint32_t at = row * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
    const uint32_t experts = task_.hiddenBytes + 8 * scaleUnits();
    if (at + 16 > experts) {
      const uint32_t first = rank * task_.expertsPerRank.by;
      const uint2 high = forExperts(make_uint2(word.z, word.w), first);
      word.z = high.x;
      word.w = high.y;
      if (at >= experts) {
        const uint2 low = forExperts(make_uint2(word.x, word.y), first);
        word.x = low.x;
        word.y = low.y;
      }
    }
    return word;
  }

  // Stores this lane's bytes of a row of a received token at its place.
  FLUXCCL_DEVICE void store(uint32_t place, uint32_t row, const uint4& word) const {
    const uint32_t at = row * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
    storeUnit(place, at, word.x, word.y);
    if (Ll128Rows::length(laneId()) == 16) {
      storeUnit(place, at + 8, word.z, word.w);
    }
  }

 private:
  FLUXCCL_DEVICE uint32_t scaleUnits() const { return (dispatch_.scaleBytes + 7) / 8; }

  // Loads a unit of the data after a token's values; zeros beyond the end. Lanes choose addresses, not branches: all
  // loads are in flight before the first result is used.
  FLUXCCL_DEVICE uint2 about(uint32_t token, uint32_t at) const {
    const uint32_t unit = (at - task_.hiddenBytes) / 8;
    const uint32_t scales = dispatch_.scaleBytes / 4;
    const uint32_t pair = token * task_.topK + unit - scaleUnits();
    const uint32_t scale = token * scales + 2 * unit;
    const bool isScale = unit < scaleUnits();
    const bool isThere = unit < scaleUnits() + task_.topK;
    uint2 found = make_uint2(0, 0);
    if (isThere) {
      found.x = *(isScale ? dispatch_.scales + scale : reinterpret_cast<const uint32_t*>(task_.ids) + pair);
    }
    if (isThere && !(isScale && 2 * unit + 1 == scales)) {
      found.y = *(isScale ? dispatch_.scales + scale + 1 : task_.weights + pair);
    }
    return found;
  }

  FLUXCCL_DEVICE uint2 forExperts(uint2 expert, uint32_t first) const {
    const uint32_t id = expert.x - first;
    const bool isThere = id < task_.expertsPerRank.by;
    return make_uint2(isThere ? id : ~0u, isThere ? expert.y : 0);
  }

  FLUXCCL_DEVICE void storeUnit(uint32_t place, uint32_t at, uint32_t low, uint32_t high) const {
    if (at < task_.hiddenBytes) {
      uint8_t* values = peers_.outputs[peers_.rank] + uint64_t{place} * task_.hiddenBytes;
      *reinterpret_cast<uint2*>(values + at) = make_uint2(low, high);
      return;
    }
    const uint32_t unit = (at - task_.hiddenBytes) / 8;
    const uint32_t scales = dispatch_.scaleBytes / 4;
    const uint32_t pair = place * task_.topK + unit - scaleUnits();
    const uint32_t scale = place * scales + 2 * unit;
    const bool isScale = unit < scaleUnits();
    if (unit < scaleUnits() + task_.topK) {
      *(isScale ? dispatch_.receivedScales + scale : reinterpret_cast<uint32_t*>(task_.receivedIds) + pair) = low;
      if (!(isScale && 2 * unit + 1 == scales)) {
        *(isScale ? dispatch_.receivedScales + scale + 1 : task_.receivedWeights + pair) = high;
      }
    }
  }

  const MappedPeers& peers_;
  const ExpertTask& task_;
  const DispatchTask& dispatch_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
