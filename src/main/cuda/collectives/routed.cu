// SPDX-License-Identifier: Apache-2.0
// The kernels of the family "cuda" that read sizes from device memory.
#include "combine.cuh"
#include "dispatch.cuh"
#include "routed_all_to_all.cuh"

using namespace fluxccl;
using namespace fluxccl::collectives;

// Two blocks of these fit on a multiprocessor.
#define FLUXCCL_ROUTED extern "C" __global__ void __launch_bounds__(512, 2)

FLUXCCL_ROUTED fluxccl_routed_all_to_all(const __grid_constant__ MappedPeers peers,
                                         const __grid_constant__ CountedParts task) {
  CountedExchange(peers, task).run();
}

FLUXCCL_ROUTED fluxccl_routed_dispatch(const __grid_constant__ MappedPeers peers,
                                       const __grid_constant__ DispatchTask task) {
  Dispatch(peers, task).run();
}

FLUXCCL_ROUTED fluxccl_routed_combine(const __grid_constant__ MappedPeers peers,
                                      const __grid_constant__ CombineTask task) {
  Combine<false>(peers, task).run();
}

FLUXCCL_ROUTED fluxccl_routed_combine_weighted(const __grid_constant__ MappedPeers peers,
                                               const __grid_constant__ CombineTask task) {
  Combine<true>(peers, task).run();
}
