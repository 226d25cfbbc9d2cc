// SPDX-License-Identifier: Apache-2.0
// Work that stands for a user's computation; Arithmetic.java computes the expected results.
#pragma once

#include <fluxccl/config.cuh>

namespace work {

using fluxccl::int32_t;
using fluxccl::uint32_t;
using fluxccl::uint64_t;

constexpr uint32_t kElements = sizeof(uint4) / sizeof(uint32_t);

// The computation for each element. A kernel takes it by value.
struct Work {
  // Not constants, because the compiler would then merge steps.
  uint32_t multiplier;
  uint32_t increment;
  uint32_t seed;
  int32_t steps;
};

// Returns the element of the result at index, and the three after it.
__device__ inline uint4 compute(const Work& work, uint32_t index) {
  constexpr uint32_t kSpread = 0x9e3779b1u;
  uint32_t x = work.seed + index * kSpread;
  uint32_t y = x + kSpread;
  uint32_t z = y + kSpread;
  uint32_t w = z + kSpread;
  for (int32_t i = 0; i < work.steps; ++i) {
    x = x * work.multiplier + work.increment;
    y = y * work.multiplier + work.increment;
    z = z * work.multiplier + work.increment;
    w = w * work.multiplier + work.increment;
  }
  return make_uint4(x, y, z, w);
}

}  // namespace work
