// SPDX-License-Identifier: Apache-2.0
// The kernels of collectives between hosts that are not hierarchical, one for each method and type of
// element. Data that is not reduced is moved as uint8.
#include "pipe_exchange.cuh"
#include "pipe_ring.cuh"

constexpr int kPipeThreads = fluxccl::collectives::pipes::kThreads;

#define FLUXCCL_PIPES_EXCHANGE(label, T)                                                                  \
  extern "C" __global__ void __launch_bounds__(kPipeThreads, 1)                                     \
      fluxccl_pipe_exchange_##label(const __grid_constant__ fluxccl::collectives::pipes::ExchangePlan plan) {\
    fluxccl::collectives::pipes::exchange<T>(plan, fluxccl::collectives::pipes::PlannedParts{plan});\
  }

// With the methods that round intermediate values.
#define FLUXCCL_PIPES(label, T)                                                                     \
  FLUXCCL_PIPES_EXCHANGE(label, T)                                                                        \
  extern "C" __global__ void __launch_bounds__(kPipeThreads, 1)                                     \
      fluxccl_pipe_ring_##label(const __grid_constant__ fluxccl::collectives::pipes::ReductionPlan plan) {\
    fluxccl::collectives::pipes::ring<T>(plan);                                                     \
  }

FLUXCCL_PIPES(int8, signed char)
FLUXCCL_PIPES(uint8, fluxccl::uint8_t)
FLUXCCL_PIPES(int32, fluxccl::int32_t)
FLUXCCL_PIPES(uint32, fluxccl::uint32_t)
FLUXCCL_PIPES(int64, fluxccl::int64_t)
FLUXCCL_PIPES(uint64, fluxccl::uint64_t)
FLUXCCL_PIPES(half, fluxccl::collectives::Half)
FLUXCCL_PIPES(float, float)
FLUXCCL_PIPES(double, double)
FLUXCCL_PIPES(bfloat16, fluxccl::collectives::Bfloat16)
FLUXCCL_PIPES_EXCHANGE(f8e4m3, fluxccl::collectives::Float8E4m3)
FLUXCCL_PIPES_EXCHANGE(f8e5m2, fluxccl::collectives::Float8E5m2)

extern "C" __global__ void __launch_bounds__(kPipeThreads, 1)
    fluxccl_pipe_exchange_listed(
        const __grid_constant__ fluxccl::collectives::pipes::ExchangePlan plan,
        const __grid_constant__ fluxccl::collectives::pipes::ListedParts parts) {
  fluxccl::collectives::pipes::exchange<fluxccl::uint8_t>(plan, parts);
}
