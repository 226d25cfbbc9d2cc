// SPDX-License-Identifier: Apache-2.0
// An all-reduce that sends 8 bits for each element: two shots, as reduce_two_shots.cuh. Each rank sends its part
// of the input to the part's owner as codes; the owner adds up what they stand for, and its own part as it is, in
// rank order and in single precision; and it sends the sum as codes. All ranks, the owner included, keep what the
// codes of the sum stand for, so all of them get the same bits.
//
//   line of packets   7 x 16 codes, the scale of these 112 elements, the flag
//
// A code times the scale is the value that it stands for. The scale is the largest magnitude of the group divided
// by the largest code. A group with a value that is not finite becomes NaN, all of it.
#pragma once

#include "element.cuh"
#include "reduction.cuh"
#include "routing.cuh"

namespace fluxccl {
namespace collectives {

// The codes: 4 bits of exponent and 3 of fraction, or integers.
struct Float8Code {
  static constexpr float kMost = 448.0f;

  static FLUXCCL_DEVICE uint8_t encode(float value) { return Element<Float8E4m3>::narrow(value).bits; }
  static FLUXCCL_DEVICE float decode(uint8_t code) { return Element<Float8E4m3>::widen(Float8E4m3{code}); }
};

struct Int8Code {
  static constexpr float kMost = 127.0f;

  static FLUXCCL_DEVICE uint8_t encode(float value) {
    const float whole = rintf(value);
    return static_cast<uint8_t>(static_cast<signed char>(whole > kMost    ? kMost
                                                         : whole < -kMost ? -kMost
                                                         : whole == whole ? whole
                                                                          : 0.0f));
  }
  static FLUXCCL_DEVICE float decode(uint8_t code) { return static_cast<float>(static_cast<signed char>(code)); }
};

// The values of a row that one lane holds: 16 of them. The last lane of a line holds the scale, and no values.
template <typename T, class Code>
struct QuantizedValues {
  static constexpr uint32_t kLane = 16;
  static constexpr uint32_t kGroup = 7 * kLane;
  static constexpr uint32_t kRow = 4 * kGroup;
  // Groups of smaller values become zeros: the quotient below would overflow.
  static constexpr float kLeast = 1e-30f;

  float values[kLane] = {};

  static FLUXCCL_DEVICE bool hasScale() { return laneId() % 8 == 7; }
  static FLUXCCL_DEVICE uint64_t offset(uint32_t row) {
    return uint64_t{row} * kRow + laneId() / 8 * kGroup + laneId() % 8 * kLane;
  }

  // Loads this lane's values of a row of `size` elements; zeros beyond the end.
  FLUXCCL_DEVICE void load(const T* elements, uint64_t size, uint32_t row) {
    const uint64_t at = offset(row);
    if (hasScale() || at >= size) {
      return;
    }
    if (at + kLane <= size && reinterpret_cast<uint64_t>(elements) % sizeof(uint4) == 0) {
      uint4 words[kWords];
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) {
        words[i] = reinterpret_cast<const uint4*>(elements + at)[i];
      }
      T all[kLane];
      memcpy(all, words, sizeof(all));
#pragma unroll
      for (uint32_t i = 0; i < kLane; ++i) {
        values[i] = Element<T>::widen(all[i]);
      }
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) {
      values[i] = at + i < size ? Element<T>::widen(elements[at + i]) : 0.0f;
    }
  }

  FLUXCCL_DEVICE void store(T* elements, uint64_t size, uint32_t row) const {
    const uint64_t at = offset(row);
    if (hasScale() || at >= size) {
      return;
    }
    if (at + kLane <= size && reinterpret_cast<uint64_t>(elements) % sizeof(uint4) == 0) {
      T all[kLane];
#pragma unroll
      for (uint32_t i = 0; i < kLane; ++i) {
        all[i] = Element<T>::narrow(values[i]);
      }
      uint4 words[kWords];
      memcpy(words, all, sizeof(words));
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) {
        reinterpret_cast<uint4*>(elements + at)[i] = words[i];
      }
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) {
      if (at + i < size) {
        elements[at + i] = Element<T>::narrow(values[i]);
      }
    }
  }

  FLUXCCL_DEVICE void add(const QuantizedValues& other) {
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) {
      values[i] = __fadd_rn(values[i], other.values[i]);
    }
  }

  // Returns this lane's word of the row of packets. All lanes of the warp call it.
  FLUXCCL_DEVICE uint4 encode() const {
    float most = 0;
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) {
      const float magnitude = fabsf(values[i]);
      most = magnitude <= kFinite ? fmaxf(most, magnitude) : kInfinity();
    }
#pragma unroll
    for (int step = 1; step < 8; step *= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
    }
    const bool isFinite = most <= kFinite;
    if (hasScale()) {
      const float scale = !isFinite ? __uint_as_float(0x7fc00000u) : most < kLeast ? 0.0f : most / Code::kMost;
      return make_uint4(__float_as_uint(scale), 0, 0, 0);
    }
    const float factor = !isFinite || most < kLeast ? 0.0f : Code::kMost / most;
    uint32_t words[4] = {};
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) {
      words[i / 4] |= static_cast<uint32_t>(Code::encode(__fmul_rn(values[i], factor))) << (8 * (i % 4));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }

  // Sets this lane's values from a word. All lanes of the warp call it.
  FLUXCCL_DEVICE void decode(const uint4& word) {
    const float scale = __uint_as_float(__shfl_sync(kAllLanes, word.x, laneId() | 7));
    // The lane with the scale has no codes, and must not contribute to its group's largest magnitude.
    const uint32_t mask = hasScale() ? 0 : ~0u;
    const uint32_t words[4] = {word.x & mask, word.y & mask, word.z & mask, word.w & mask};
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) {
      values[i] = __fmul_rn(Code::decode(static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)))), scale);
    }
  }

 private:
  static constexpr uint32_t kWords = kLane * sizeof(T) / sizeof(uint4);
  static constexpr float kFinite = 3.402823466e38f;

  static FLUXCCL_DEVICE float kInfinity() { return __uint_as_float(0x7f800000u); }
};

template <typename T, class Code>
class QuantizedReduce {
 public:
  FLUXCCL_DEVICE QuantizedReduce(const MappedPeers& peers, const Reduction& task) : peers_(peers), task_(task) {}

  FLUXCCL_DEVICE void run() {
    const uint32_t rows = static_cast<uint32_t>((task_.partBytes / sizeof(T) + Values::kRow - 1) / Values::kRow);
    const uint32_t sliceRows = task_.slotBytes / Ll128Rows::kSize;
    uint32_t epoch = beginEpoch(peers_);
    bool going = true;
    for (uint32_t first = 0; going && first < rows; first += sliceRows) {
      if (first > 0) {
        epoch = nextEpoch(epoch);
      }
      const uint32_t count = min(sliceRows, rows - first);
      beginSlice(peers_, epoch);
      scatter(first, count, epoch);
      going = endSlice(peers_, epoch, reduce(first, count, epoch) && gather(first, count, epoch));
    }
    endEpoch(peers_, epoch, __syncthreads_and(going));
  }

 private:
  using Values = QuantizedValues<T, Code>;
  enum Phase { kScatter, kGather, kPhases };

  FLUXCCL_DEVICE uint8_t* row(int at, int from, Phase phase, uint32_t epoch, uint32_t index) const {
    return peers_.area(at, task_.area + task_.slot(peers_, phase, kPhases, from, epoch) + index * Ll128Rows::kSize);
  }
  FLUXCCL_DEVICE uint64_t size(int part) const { return task_.sizeOf(part) / sizeof(T); }
  FLUXCCL_DEVICE T* output(int part) const {
    return reinterpret_cast<T*>(peers_.outputs[peers_.rank] + task_.outputOffset(part));
  }
  FLUXCCL_DEVICE void loadInput(Values& values, int part, uint32_t index) const {
    values.load(reinterpret_cast<const T*>(peers_.inputs[peers_.rank] + part * task_.inputStride), size(part), index);
  }

  FLUXCCL_DEVICE void scatter(uint32_t first, uint32_t count, uint32_t epoch) const {
    for (uint32_t i = warpOfLaunch(); i < count; i += warpsOfLaunch()) {
      for (int k = 1; k < peers_.nRanks; ++k) {
        const int peer = peers_.successor(k);
        Values values;
        loadInput(values, peer, first + i);
        Ll128Rows::send(row(peer, peers_.rank, kScatter, epoch, i), laneId(), values.encode(), epoch);
      }
    }
  }

  FLUXCCL_DEVICE bool reduce(uint32_t first, uint32_t count, uint32_t epoch) const {
    for (uint32_t i = warpOfLaunch(); i < count; i += warpsOfLaunch()) {
      Values sum;
#pragma unroll 1
      for (int from = 0; from < peers_.nRanks; ++from) {
        Values values;
        if (from == peers_.rank) {
          loadInput(values, from, first + i);
        } else {
          uint4 raw;
          if (!receiveRow<Ll128Rows>(peers_.abort, from, row(peers_.rank, from, kScatter, epoch, i), laneId(), epoch,
                                     raw)) {
            return false;
          }
          values.decode(raw);
        }
        sum.add(values);
      }
      const uint4 codes = sum.encode();
      for (int k = 1; k < peers_.nRanks; ++k) {
        Ll128Rows::send(row(peers_.successor(k), peers_.rank, kGather, epoch, i), laneId(), codes, epoch);
      }
      sum.decode(codes);
      sum.store(output(peers_.rank), size(peers_.rank), first + i);
    }
    return true;
  }

  FLUXCCL_DEVICE bool gather(uint32_t first, uint32_t count, uint32_t epoch) const {
    for (uint32_t i = warpOfLaunch(); i < count; i += warpsOfLaunch()) {
#pragma unroll 1
      for (int k = 1; k < peers_.nRanks; ++k) {
        const int from = peers_.predecessor(k);
        uint4 raw;
        if (!receiveRow<Ll128Rows>(peers_.abort, from, row(peers_.rank, from, kGather, epoch, i), laneId(), epoch,
                                   raw)) {
          return false;
        }
        Values values;
        values.decode(raw);
        values.store(output(from), size(from), first + i);
      }
    }
    return true;
  }

  const MappedPeers& peers_;
  const Reduction& task_;
};

}  // namespace collectives
}  // namespace fluxccl
