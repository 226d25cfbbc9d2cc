// SPDX-License-Identifier: Apache-2.0
// The epilogue of io.fluxccl.collective.AddRmsNorm: adds the residual to a reduced row, and norms the sum.
#pragma once

#include "reduced_row.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.AddRmsNorm, which describes each field. Null pointers disable an input
// or output.
struct AddRmsNorm {
  const uint4* residual;
  const uint4* weight;
  uint4* residualOut;
  uint4* normOut;
  uint8_t* quantizedOut;
  float* scales;
  float epsilon;
  float weightBias;
  // 1 / scale, if the scale is static.
  float inverseScale;
  int32_t padding;

#if defined(FLUXCCL_CUDA)
  // Returns the sum of the squares of a word's elements.
  template <typename T>
  static FLUXCCL_DEVICE float squares(const uint4& word) {
    float values[Words<T>::kElements];
    Words<T>::widen(word, values);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < Words<T>::kElements; ++j) {
      sum = __fadd_rn(sum, __fmul_rn(values[j], values[j]));
    }
    return sum;
  }

  // Returns the factor of a row with this mean of squares.
  FLUXCCL_DEVICE float scale(float meanSquare) const { return rsqrtf(__fadd_rn(meanSquare, epsilon)); }

  template <typename T>
  FLUXCCL_DEVICE uint4 normed(const uint4& word, const uint4& weights, float scale) const {
    float values[Words<T>::kElements];
    float gain[Words<T>::kElements];
    Words<T>::widen(word, values);
    Words<T>::widen(weights, gain);
#pragma unroll
    for (int j = 0; j < Words<T>::kElements; ++j) {
      values[j] = __fmul_rn(__fmul_rn(values[j], scale), __fadd_rn(gain[j], weightBias));
    }
    return Words<T>::narrow(values);
  }

  // Returns the largest magnitude of a word's elements.
  template <typename T>
  static FLUXCCL_DEVICE float largest(const uint4& word) {
    float values[Words<T>::kElements];
    Words<T>::widen(word, values);
    float most = 0;
#pragma unroll
    for (int j = 0; j < Words<T>::kElements; ++j) {
      most = fmaxf(most, fabsf(values[j]));
    }
    return most;
  }

  // Returns the scale of a row whose largest magnitude this is.
  static FLUXCCL_DEVICE float scaleOf(float largest) { return fmaxf(__fmul_rn(largest, 1 / kLargest), kLeastScale); }

  // Stores a word of the normed matrix, by its index there, divided by the scale.
  template <typename T>
  FLUXCCL_DEVICE void quantize(uint64_t index, const uint4& word, float inverse) const {
    float values[Words<T>::kElements];
    uint16_t pairs[Words<T>::kElements / 2];
    Words<T>::widen(word, values);
#pragma unroll
    for (int j = 0; j < Words<T>::kElements / 2; ++j) {
      pairs[j] = float8Pair(__fmul_rn(values[2 * j], inverse), __fmul_rn(values[2 * j + 1], inverse));
    }
    storePairs(quantizedOut + index * Words<T>::kElements, pairs);
  }

 private:
  // Of FLOAT8_E4M3.
  static constexpr float kLargest = 448;
  // The scale of a row of zeros.
  static constexpr float kLeastScale = 1.0f / (512 * kLargest);

  static FLUXCCL_DEVICE uint16_t float8Pair(float low, float high) {
    if constexpr (kNarrowsToFloat8Pairs) {
      return floatsToE4m3(low, high);
    } else {
      using E4m3 = Element<Float8E4m3>;
      return static_cast<uint16_t>(E4m3::narrow(low).bits | E4m3::narrow(high).bits << 8);
    }
  }
  static FLUXCCL_DEVICE void storePairs(uint8_t* to, const uint16_t (&pairs)[4]) {
    uint2 bytes;
    memcpy(&bytes, pairs, sizeof(bytes));
    *reinterpret_cast<uint2*>(to) = bytes;
  }
  static FLUXCCL_DEVICE void storePairs(uint8_t* to, const uint16_t (&pairs)[2]) {
    uint32_t bytes;
    memcpy(&bytes, pairs, sizeof(bytes));
    *reinterpret_cast<uint32_t*>(to) = bytes;
  }
#endif
};
FLUXCCL_ASSERT_OFFSET(AddRmsNorm, epsilon, 48);
FLUXCCL_ASSERT_SIZE(AddRmsNorm, 64);

#if defined(FLUXCCL_CUDA)

// The function of a reduced row, for a block that has all of it. kQuantizes: whether there is a quantised output.
template <bool kQuantizes>
class AddRmsNormRow {
 public:
  FLUXCCL_DEVICE explicit AddRmsNormRow(const AddRmsNorm& argument) : norm(argument) {}

  template <typename T, int kWords>
  FLUXCCL_DEVICE void operator()(ReducedRow<T, kWords>& row) const {
    const RowThread& thread = row.thread();
    const uint64_t begin = static_cast<uint64_t>(row.index()) * thread.words;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread.has(k)) {
        const uint64_t at = begin + thread.word(k);
        row.words[k] = addWords<T>(row.words[k], norm.residual[at]);
        if (norm.residualOut != nullptr) {
          norm.residualOut[at] = row.words[k];
        }
      }
    }
    const float scale = norm.scale(row.meanOf([](float value) { return __fmul_rn(value, value); }));
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread.has(k)) {
        row.words[k] = norm.normed<T>(row.words[k], norm.weight[thread.word(k)], scale);
        if (norm.normOut != nullptr) {
          norm.normOut[begin + thread.word(k)] = row.words[k];
        }
      }
    }
    if (kQuantizes) {
      quantize(row, begin);
    }
  }

 private:
  template <typename T, int kWords>
  FLUXCCL_DEVICE void quantize(ReducedRow<T, kWords>& row, uint64_t begin) const {
    float inverse = norm.inverseScale;
    if (norm.scales != nullptr) {
      const float scale = AddRmsNorm::scaleOf(row.largestOf([](float value) { return fabsf(value); }));
      if (threadIdx.x == 0) {
        norm.scales[row.index()] = scale;
      }
      inverse = 1 / scale;
    }
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (row.thread().has(k)) {
        norm.quantize<T>(begin + row.thread().word(k), row.words[k], inverse);
      }
    }
  }

  const AddRmsNorm& norm;
};

#endif

}  // namespace collectives
}  // namespace fluxccl
