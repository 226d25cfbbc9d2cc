// The kernels of AllReduce on GPUs: one for each algorithm and type of element, named after them.
#include "all_reduce_channels.cuh"
#include "all_reduce_direct.cuh"
#include "all_reduce_packets.cuh"

using namespace fluxccl;
using namespace fluxccl::collectives;

// More threads a block would leave each too few registers.
constexpr int kMaxThreads = 512;

#define FLUXCCL_ALL_REDUCE(label, T)                                                             \
  extern "C" __global__ void __launch_bounds__(kMaxThreads, 1) fluxccl_all_reduce_one_shot_##label( \
      const __grid_constant__ MappedRanks ranks, uint64_t count, ReduceOp op) {                  \
    allReduceOneShot<T>(ranks, count, op);                                                       \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(kMaxThreads, 1)                                      \
      fluxccl_all_reduce_two_phases_##label(const __grid_constant__ MappedRanks ranks,           \
                                            uint64_t count, uint64_t chunkElements,              \
                                            ReduceOp op) {                                       \
    allReduceTwoPhases<T>(ranks, count, chunkElements, op);                                      \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(kMaxThreads, 1) fluxccl_all_reduce_direct_##label(   \
      const __grid_constant__ MappedRanks ranks, uint64_t count, uint64_t chunkElements,         \
      ReduceOp op) {                                                                             \
    allReduceDirect<T>(ranks, count, chunkElements, op);                                         \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(kMaxThreads, 1) fluxccl_all_reduce_channels_##label( \
      const __grid_constant__ ChannelRanks ranks, uint64_t count, uint64_t chunkElements,        \
      ReduceOp op) {                                                                             \
    allReduceChannels<T>(ranks, count, chunkElements, op);                                       \
  }

FLUXCCL_ALL_REDUCE(int8, signed char)
FLUXCCL_ALL_REDUCE(uint8, uint8_t)
FLUXCCL_ALL_REDUCE(int32, int32_t)
FLUXCCL_ALL_REDUCE(uint32, uint32_t)
FLUXCCL_ALL_REDUCE(int64, int64_t)
FLUXCCL_ALL_REDUCE(uint64, uint64_t)
FLUXCCL_ALL_REDUCE(half, Half)
FLUXCCL_ALL_REDUCE(float, float)
FLUXCCL_ALL_REDUCE(double, double)
FLUXCCL_ALL_REDUCE(bfloat16, Bfloat16)
FLUXCCL_ALL_REDUCE(f8e4m3, Float8E4m3)
FLUXCCL_ALL_REDUCE(f8e5m2, Float8E5m2)
