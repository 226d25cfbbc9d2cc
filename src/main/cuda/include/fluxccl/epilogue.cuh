// SPDX-License-Identifier: Apache-2.0
// A user-defined epilogue for fused all-reduces: a structure with a function of the reduced row.
//
//   struct BiasSilu {
//     const float* bias;
//     float* out;
//     template <class Row>
//     __device__ void operator()(Row& row) const {
//       row.forEach([&](unsigned column, float sum) { ... });
//     }
//   };
//   FLUXCCL_EPILOGUE(biasSilu, BiasSilu)
//
// The row is a ReducedRow of collectives/reduced_row.cuh: index(), hidden(), forEach, map, store, sumOf, largestOf.
// All threads of a block call the function together. CustomEpilogue passes the structure's fields.
#pragma once

#include "config.cuh"

#if defined(FLUXCCL_CUDA)
#include <collectives/fused_rows.cuh>

// Defines the kernels of an epilogue. Function is the structure's name.
#define FLUXCCL_EPILOGUE(name, Function) \
  FLUXCCL_FUSED_KERNELS(name, Function)
#endif
