// SPDX-License-Identifier: Apache-2.0
// The kernels of quantized all-reduces, of the family "cuda": one for each kind of code and type of element.
#include "reduce_quantized.cuh"

// Two blocks of these fit on a multiprocessor.
#define FLUXCCL_QUANTIZED(code, Code, label, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(512, 2) fluxccl_quantized_##code##_##label(                          \
      const __grid_constant__ fluxccl::collectives::MappedPeers peers,                                              \
      const __grid_constant__ fluxccl::collectives::Reduction task) {                                               \
    fluxccl::collectives::QuantizedReduce<T, fluxccl::collectives::Code>(peers, task).run();                        \
  }

#define FLUXCCL_QUANTIZED_TYPES(code, Code)                            \
  FLUXCCL_QUANTIZED(code, Code, half, fluxccl::collectives::Half)      \
  FLUXCCL_QUANTIZED(code, Code, bfloat16, fluxccl::collectives::Bfloat16) \
  FLUXCCL_QUANTIZED(code, Code, float, float)

FLUXCCL_QUANTIZED_TYPES(f8e4m3, Float8Code)
FLUXCCL_QUANTIZED_TYPES(int8, Int8Code)
