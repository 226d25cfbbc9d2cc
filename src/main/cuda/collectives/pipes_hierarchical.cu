// SPDX-License-Identifier: Apache-2.0
// The kernels of hierarchical collectives: one for each collective, and for the all-reduce one for each type
// of element.
#include "pipe_chains.cuh"
#include "pipe_hierarchical_all_reduce.cuh"
#include "pipe_rail_rounds.cuh"

constexpr int kHierarchicalThreads = fluxccl::collectives::pipes::kThreads;

#define FLUXCCL_PIPES_HIERARCHICAL(name, Lane)                                         \
  extern "C" __global__ void __launch_bounds__(kHierarchicalThreads, 1)                \
      fluxccl_pipe_hierarchical_##name(                                                \
          const __grid_constant__ fluxccl::collectives::pipes::HierarchyPlan plan) {   \
    __shared__ fluxccl::collectives::pipes::Slots slots;                               \
    fluxccl::collectives::pipes::Lane(plan, slots).run();                              \
  }

FLUXCCL_PIPES_HIERARCHICAL(all_reduce_int8, AllReduceLane<signed char>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_uint8, AllReduceLane<fluxccl::uint8_t>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_int32, AllReduceLane<fluxccl::int32_t>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_uint32, AllReduceLane<fluxccl::uint32_t>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_int64, AllReduceLane<fluxccl::int64_t>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_uint64, AllReduceLane<fluxccl::uint64_t>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_half, AllReduceLane<fluxccl::collectives::Half>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_float, AllReduceLane<float>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_double, AllReduceLane<double>)
FLUXCCL_PIPES_HIERARCHICAL(all_reduce_bfloat16, AllReduceLane<fluxccl::collectives::Bfloat16>)
FLUXCCL_PIPES_HIERARCHICAL(all_gather, AllGatherLane)
FLUXCCL_PIPES_HIERARCHICAL(reduce_scatter, ReduceScatterLane)
FLUXCCL_PIPES_HIERARCHICAL(all_to_all, AllToAllLane)
FLUXCCL_PIPES_HIERARCHICAL(broadcast, BroadcastLane)
FLUXCCL_PIPES_HIERARCHICAL(reduce, ReduceLane)
