// SPDX-License-Identifier: Apache-2.0
// A row of a fused all-reduce after its reduction, as the threads of its block see it.
//
// A row is made of words of 16 bytes; 32 neighbouring words are a group, which one warp holds. Sums over a row
// are made in one order: over the elements of each word, over the words of each group, over four groups at a time, over
// every eighth of these, over the eight sums. So they depend on the row alone, not on the block's threads, the algorithm
// or the other rows of the call.
#pragma once

#include "accumulator.cuh"
#include "mapped_peers.cuh"

namespace fluxccl {
namespace collectives {

// Words of 16 bytes with elements of type T.
template <typename T>
struct Words {
  static constexpr int kElements = sizeof(uint4) / sizeof(T);

  static FLUXCCL_DEVICE void widen(const uint4& word, float (&to)[kElements]) {
    T elements[kElements];
    memcpy(elements, &word, sizeof(word));
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      to[j] = Element<T>::widen(elements[j]);
    }
  }

  static FLUXCCL_DEVICE uint4 narrow(const float (&values)[kElements]) {
    T elements[kElements];
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      elements[j] = Element<T>::narrow(values[j]);
    }
    uint4 word;
    memcpy(&word, elements, sizeof(word));
    return word;
  }
};

// Groups of the longest row: 64 KiB.
constexpr uint32_t kMostGroups = 128;

// Lanes that add up sums of groups, four at a time, each.
constexpr uint32_t kSumsAtOnce = 8;

// The words of a row that a thread has: the words of its lane in every group of its warp.
struct RowThread {
  uint32_t words;
  uint32_t groups;
  uint32_t lane;
  uint32_t warp;
  uint32_t warps;

  FLUXCCL_DEVICE explicit RowThread(uint32_t wordsOfRow)
      : words(wordsOfRow),
        groups((wordsOfRow + kLanes - 1) / kLanes),
        lane(threadIdx.x % kLanes),
        warp(threadIdx.x / kLanes),
        warps(blockDim.x / kLanes) {}

  FLUXCCL_DEVICE uint32_t group(int k) const { return k * warps + warp; }
  FLUXCCL_DEVICE uint32_t word(int k) const { return group(k) * kLanes + lane; }
  FLUXCCL_DEVICE bool has(int k) const { return word(k) < words; }
};

// Sums of groups, in two sets that alternate: one barrier for each sum is enough.
struct alignas(16) GroupSums {
  float sums[2][kMostGroups];
  // Maxima by warp, also in two sets that alternate.
  float most[2][kLanes];
};

// The row of an epilogue. Every thread of the block has some of its elements, all threads call the methods.
template <typename T, int kWords>
class ReducedRow {
 public:
  // Elements of a word.
  static constexpr int kElements = Words<T>::kElements;

  FLUXCCL_DEVICE ReducedRow(const RowThread& thread, GroupSums& shared)
      : thread_(thread), shared_(shared), perElement_(1.0f / static_cast<float>(hidden())), set_(0) {
    if (threadIdx.x == 0) {
      // The groups up to a multiple of four that no warp has.
      for (uint32_t i = kWords * thread.warps; i < kMostGroups && i < (thread.groups + 3) / 4 * 4; ++i) {
        shared.sums[0][i] = 0;
        shared.sums[1][i] = 0;
      }
    }
  }

  // Begins the row with an index in the call. The caller sets this thread's words.
  FLUXCCL_DEVICE void begin(uint32_t index) { index_ = index; }

  // Number of the row in the call.
  FLUXCCL_DEVICE uint32_t index() const { return index_; }

  // Elements of a row.
  FLUXCCL_DEVICE uint32_t hidden() const { return thread_.words * kElements; }

  FLUXCCL_DEVICE const RowThread& thread() const { return thread_; }

  // Calls f(column, value) for each element of this thread.
  template <class F>
  FLUXCCL_DEVICE void forEach(F f) const {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread_.has(k)) {
        float values[kElements];
        Words<T>::widen(words[k], values);
#pragma unroll
        for (int j = 0; j < kElements; ++j) {
          f(thread_.word(k) * kElements + j, values[j]);
        }
      }
    }
  }

  // Replaces each element by f(column, value), rounded to T.
  template <class F>
  FLUXCCL_DEVICE void map(F f) {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread_.has(k)) {
        float values[kElements];
        Words<T>::widen(words[k], values);
#pragma unroll
        for (int j = 0; j < kElements; ++j) {
          values[j] = f(thread_.word(k) * kElements + j, values[j]);
        }
        words[k] = Words<T>::narrow(values);
      }
    }
  }

  // Stores the row in a matrix of such rows.
  FLUXCCL_DEVICE void store(T* rows) const {
    uint4* to = reinterpret_cast<uint4*>(rows) + static_cast<uint64_t>(index_) * thread_.words;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread_.has(k)) {
        to[thread_.word(k)] = words[k];
      }
    }
  }

  // Returns the mean of f(value) over the row.
  template <class F>
  FLUXCCL_DEVICE float meanOf(F f) {
    return __fmul_rn(sumOf(f), perElement_);
  }

  // Returns the sum of f(value) over the row.
  template <class F>
  FLUXCCL_DEVICE float sumOf(F f) {
    float* sums = shared_.sums[set_];
    set_ ^= 1;
    float ofGroup[kWords];
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      ofGroup[k] = 0;
      if (thread_.has(k)) {
        float values[kElements];
        Words<T>::widen(words[k], values);
#pragma unroll
        for (int j = 0; j < kElements; ++j) {
          ofGroup[k] = __fadd_rn(ofGroup[k], f(values[j]));
        }
      }
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        ofGroup[k] = __fadd_rn(ofGroup[k], __shfl_xor_sync(kAllLanes, ofGroup[k], offset));
      }
    }
    if (thread_.lane == 0) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        sums[thread_.group(k)] = ofGroup[k];
      }
    }
    __syncthreads();
    float total = 0;
    for (uint32_t first = thread_.lane % kSumsAtOnce * 4; first < thread_.groups; first += kSumsAtOnce * 4) {
      const float4 four = *reinterpret_cast<const float4*>(sums + first);
      total = __fadd_rn(total, __fadd_rn(__fadd_rn(four.x, four.y), __fadd_rn(four.z, four.w)));
    }
#pragma unroll
    for (int offset = kSumsAtOnce / 2; offset > 0; offset /= 2) {
      total = __fadd_rn(total, __shfl_xor_sync(kAllLanes, total, offset));
    }
    return total;
  }

  // Returns the largest f(value) of the row, or 0 if that is larger.
  template <class F>
  FLUXCCL_DEVICE float largestOf(F f) {
    float* ofWarps = shared_.most[set_];
    set_ ^= 1;
    float most = 0;
    forEach([&](uint32_t, float value) { most = fmaxf(most, f(value)); });
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
    }
    if (thread_.lane == 0) {
      ofWarps[thread_.warp] = most;
    }
    __syncthreads();
    most = ofWarps[0];
    for (uint32_t warp = 1; warp < thread_.warps; ++warp) {
      most = fmaxf(most, ofWarps[warp]);
    }
    return most;
  }

  // This thread's words, as far as it has them.
  uint4 words[kWords];

 private:
  const RowThread thread_;
  GroupSums& shared_;
  const float perElement_;
  uint32_t set_;
  uint32_t index_;
};

}  // namespace collectives
}  // namespace fluxccl
