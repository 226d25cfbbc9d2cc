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

  // Loads this lane's bytes of a row of a token, as a peer is to receive it.
  FLUXCCL_DEVICE uint4 load(uint32_t token, uint32_t row, int peer) const {
    const uint32_t at = row * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
    const uint32_t length = Ll128Rows::length(laneId());
    const uint8_t* values = peers_.inputs[peers_.rank] + uint64_t{token} * task_.hiddenBytes;
    uint4 word = loadValues(values, at, length, task_.hiddenBytes);
    if (at + length > task_.hiddenBytes) {
      if (at >= task_.hiddenBytes) {
        word.x = about(token, at - task_.hiddenBytes, peer);
        word.y = about(token, at + 4 - task_.hiddenBytes, peer);
      }
      if (length == 16 && at + 8 >= task_.hiddenBytes) {
        word.z = about(token, at + 8 - task_.hiddenBytes, peer);
        word.w = about(token, at + 12 - task_.hiddenBytes, peer);
      }
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
  // Returns a word of what follows the values of a token: scales, experts of the peer, weights.
  FLUXCCL_DEVICE_CALL uint32_t about(uint32_t token, uint32_t at, int peer) const {
    const uint32_t topK = task_.topK;
    if (at < dispatch_.scaleBytes) {
      return dispatch_.scales[token * (dispatch_.scaleBytes / 4) + at / 4];
    }
    const uint32_t i = (at - dispatch_.scaleBytes) / 4;
    if (i >= 2 * topK) {
      return 0;
    }
    const int32_t id = task_.ids[token * topK + i % topK] - peer * (task_.experts / peers_.nRanks);
    const bool isThere = id >= 0 && id < (task_.experts / peers_.nRanks);
    return i < topK ? static_cast<uint32_t>(isThere ? id : -1) : isThere ? task_.weights[token * topK + i - topK] : 0;
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

  FLUXCCL_DEVICE_CALL void storeAbout(uint32_t place, uint32_t at, uint32_t word) const {
    const uint32_t topK = task_.topK;
    if (at < dispatch_.scaleBytes) {
      dispatch_.receivedScales[place * (dispatch_.scaleBytes / 4) + at / 4] = word;
      return;
    }
    const uint32_t i = (at - dispatch_.scaleBytes) / 4;
    if (i < topK) {
      task_.receivedIds[place * topK + i] = static_cast<int32_t>(word);
    } else if (i < 2 * topK) {
      task_.receivedWeights[place * topK + i - topK] = word;
    }
  }

  const MappedPeers& peers_;
  const ExpertTask& task_;
  const DispatchTask& dispatch_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
