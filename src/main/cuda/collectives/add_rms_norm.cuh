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
  // The loads for a word that are in flight while its packets are on their way.
  struct Ahead {
    uint4 residual;
    uint4 weight;
  };

  FLUXCCL_DEVICE Ahead load(uint32_t row, const RowThread& thread, uint32_t word) const {
    return Ahead{residual[static_cast<uint64_t>(row) * thread.words + word], weight[word]};
  }

  // Replaces the row by its norm. All of it is in registers: outputs may be the inputs.
  template <typename T, int kWords>
  FLUXCCL_DEVICE void norm(ReducedRow<T, kWords>& row, const Ahead (&ahead)[kWords]) const {
    using Row = ReducedRow<T, kWords>;
    const RowThread& thread = row.thread();
    const uint64_t begin = static_cast<uint64_t>(row.index()) * thread.words;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread.has(k)) {
        row.words[k] = addWords<T>(row.words[k], ahead[k].residual);
        if (residualOut != nullptr) {
          residualOut[begin + thread.word(k)] = row.words[k];
        }
      }
    }
    const float meanSquare = row.meanOf([](float value) { return __fmul_rn(value, value); });
    const float scale = rsqrtf(__fadd_rn(meanSquare, epsilon));
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread.has(k)) {
        float values[Row::kElements];
        float gain[Row::kElements];
        Row::widen(row.words[k], values);
        Row::widen(ahead[k].weight, gain);
#pragma unroll
        for (int j = 0; j < Row::kElements; ++j) {
          values[j] = __fmul_rn(__fmul_rn(values[j], scale), __fadd_rn(gain[j], weightBias));
        }
        row.words[k] = Row::narrow(values);
        if (normOut != nullptr) {
          normOut[begin + thread.word(k)] = row.words[k];
        }
      }
    }
  }

  template <typename T, int kWords>
  FLUXCCL_DEVICE void finish(ReducedRow<T, kWords>& row, const Ahead (&ahead)[kWords]) const {
    norm(row, ahead);
  }
#endif
};
FLUXCCL_ASSERT_OFFSET(AddRmsNorm, epsilon, 48);
FLUXCCL_ASSERT_SIZE(AddRmsNorm, 64);

#if defined(FLUXCCL_CUDA)

// AddRmsNorm with a quantised output. It has separate kernels, because rarely used code slows short kernels.
struct AddRmsNormQuantized : AddRmsNorm {
  // Of FLOAT8_E4M3.
  static constexpr float kLargest = 448;
  // The scale of a row of zeros.
  static constexpr float kLeastScale = 1.0f / (512 * kLargest);

  template <typename T, int kWords>
  FLUXCCL_DEVICE void finish(ReducedRow<T, kWords>& row, const Ahead (&ahead)[kWords]) const {
    using Row = ReducedRow<T, kWords>;
    const RowThread& thread = row.thread();
    norm(row, ahead);
    float inverse = inverseScale;
    if (scales != nullptr) {
      const float largest = row.largestOf([](float value) { return fabsf(value); });
      const float scale = fmaxf(__fmul_rn(largest, 1 / kLargest), kLeastScale);
      if (threadIdx.x == 0) {
        scales[row.index()] = scale;
      }
      inverse = 1 / scale;
    }
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread.has(k)) {
        float values[Row::kElements];
        Float8E4m3 quantized[Row::kElements];
        Row::widen(row.words[k], values);
#pragma unroll
        for (int j = 0; j < Row::kElements; ++j) {
          quantized[j] = Element<Float8E4m3>::narrow(__fmul_rn(values[j], inverse));
        }
        const uint64_t at = static_cast<uint64_t>(row.index()) * thread.words + thread.word(k);
        storeBytes(quantizedOut + at * Row::kElements, quantized);
      }
    }
  }

 private:
  static FLUXCCL_DEVICE void storeBytes(uint8_t* to, const Float8E4m3 (&quantized)[8]) {
    uint2 bytes;
    memcpy(&bytes, quantized, sizeof(bytes));
    *reinterpret_cast<uint2*>(to) = bytes;
  }
  static FLUXCCL_DEVICE void storeBytes(uint8_t* to, const Float8E4m3 (&quantized)[4]) {
    uint32_t bytes;
    memcpy(&bytes, quantized, sizeof(bytes));
    *reinterpret_cast<uint32_t*>(to) = bytes;
  }
};

#endif

}  // namespace collectives
}  // namespace fluxccl
