// SPDX-License-Identifier: Apache-2.0
// The kernels of fused all-reduces with the library's own epilogue.
#include "fused_rows.cuh"
#include "norm_rows.cuh"

using namespace fluxccl;
using namespace fluxccl::collectives;

// threads, blocks: how many fit on a multiprocessor, see GpuGrid and FusedReduce.
#define FLUXCCL_NORM_KERNEL(name, variant, label, threads, blocks, T, ranks, kQuantizes, call)                         \
  extern "C" __global__ void __launch_bounds__(threads, blocks) fluxccl_fused_##name##_##variant##_##label(          \
      const __grid_constant__ NormTask task, const __grid_constant__ AddRmsNorm argument) {                          \
    NormRows<T, ranks, kQuantizes>(task, argument).call();                                                           \
  }

#define FLUXCCL_NORM_KERNELS_OF(name, label, T, ranks, kQuantizes)                        \
  FLUXCCL_NORM_KERNEL(name, one##ranks, label, 128, 6, T, ranks, kQuantizes, oneShot)  \
  FLUXCCL_NORM_KERNEL(name, two##ranks, label, 128, 6, T, ranks, kQuantizes, twoShots)

#define FLUXCCL_NORM_KERNELS(name, label, T, kQuantizes)                                                                \
  FLUXCCL_NORM_KERNELS_OF(name, label, T, 0, kQuantizes)                                                                \
  FLUXCCL_NORM_KERNELS_OF(name, label, T, 2, kQuantizes)                                                                \
  FLUXCCL_NORM_KERNELS_OF(name, label, T, 4, kQuantizes)                                                                \
  FLUXCCL_NORM_KERNEL(name, pair_wide, label, 1024, 1, T, 2, kQuantizes, template oneShotOfBlocks<1>)                   \
  FLUXCCL_NORM_KERNEL(name, pair, label, 512, 2, T, 2, kQuantizes, template oneShotOfBlocks<2>)                         \
  FLUXCCL_LOCAL_KERNEL(name, label, T, AddRmsNorm, AddRmsNormRow<kQuantizes>(argument))

FLUXCCL_NORM_KERNELS(norm, half, Half, false)
FLUXCCL_NORM_KERNELS(norm, bfloat16, Bfloat16, false)
FLUXCCL_NORM_KERNELS(norm, float, float, false)
FLUXCCL_NORM_KERNELS(normQuantized, half, Half, true)
FLUXCCL_NORM_KERNELS(normQuantized, bfloat16, Bfloat16, true)
FLUXCCL_NORM_KERNELS(normQuantized, float, float, true)
