// SPDX-License-Identifier: Apache-2.0
#include <fluxccl/epilogue.cuh>

// Adds a bias to each row of the sum, and applies SiLU.
struct BiasSilu {
  const float* bias;
  float* out;

  template <class Row>
  __device__ void operator()(Row& row) const {
    float* to = out + static_cast<fluxccl::uint64_t>(row.index()) * row.hidden();
    row.forEach([&](unsigned column, float sum) {
      const float x = sum + bias[column];
      to[column] = x / (1 + expf(-x));
    });
  }
};

FLUXCCL_EPILOGUE(biasSilu, BiasSilu)
