// SPDX-License-Identifier: Apache-2.0
// The kernels of reductions, of the family "cuda": one for each algorithm and type of element, named after them.
#include "reduce_bulk.cuh"
#include "reduce_one_shot.cuh"
#include "reduce_staggered.cuh"
#include "reduce_two_shots.cuh"

using namespace fluxccl;
using namespace fluxccl::collectives;

// threads: a number with which two blocks fit on a multiprocessor and the kernel spills no registers; see
// GpuGrid and Reductions.
#define FLUXCCL_REDUCE_KERNEL(name, label, threads) \
  extern "C" __global__ void __launch_bounds__(threads, 2) fluxccl_reduce_##name##_##label

#define FLUXCCL_REDUCE_ONE_SHOT(label, T, name, Rows, threads, kFour)                   \
  FLUXCCL_REDUCE_KERNEL(one_shot_##name, label, threads)                                \
  (const __grid_constant__ MappedPeers peers, const __grid_constant__ Reduction task) { \
    reduceOneShot<T, Rows, kFour>(peers, task);                                         \
  }

#define FLUXCCL_REDUCE_TWO_SHOTS(label, T, name, Rows, threads, kFour)                  \
  FLUXCCL_REDUCE_KERNEL(two_shots_##name, label, threads)                               \
  (const __grid_constant__ MappedPeers peers, const __grid_constant__ Reduction task) { \
    reduceTwoShots<T, Rows, kFour>(peers, task);                                        \
  }

// A packet of 4 bytes holds no element of 8.
#define FLUXCCL_REDUCE_SMALL(label, T)                        \
  FLUXCCL_REDUCE_ONE_SHOT(label, T, ll8, Ll8Rows, 512, false) \
  FLUXCCL_REDUCE_TWO_SHOTS(label, T, ll8, Ll8Rows, 512, false)

#define FLUXCCL_REDUCE_ANY(label, T)                                                    \
  FLUXCCL_REDUCE_ONE_SHOT(label, T, ll128, Ll128Rows, 512, false)                       \
  FLUXCCL_REDUCE_TWO_SHOTS(label, T, ll128, Ll128Rows, 256, false)                      \
  FLUXCCL_REDUCE_KERNEL(staggered, label, 512)                                          \
  (const __grid_constant__ MappedPeers peers, const __grid_constant__ Reduction task,   \
   const __grid_constant__ Scratch scratch) {                                           \
    reduceStaggered<T>(peers, task, scratch);                                           \
  }                                                                                     \
  FLUXCCL_REDUCE_KERNEL(slice, label, 512)                                              \
  (const __grid_constant__ MappedPeers peers, const __grid_constant__ Reduction task,   \
   const __grid_constant__ Scratch scratch, uint64_t begin, uint64_t bytes) {           \
    reduceSlice<T>(peers, task, scratch, begin, bytes);                                 \
  }

#define FLUXCCL_REDUCE_FLOATS(label, T)                                                 \
  FLUXCCL_REDUCE_ONE_SHOT(label, T, sentinel, SentinelRows<sizeof(T)>, 512, false)      \
  FLUXCCL_REDUCE_ONE_SHOT(label, T, four_sentinel, SentinelRows<sizeof(T)>, 256, true)  \
  FLUXCCL_REDUCE_TWO_SHOTS(label, T, sentinel, SentinelRows<sizeof(T)>, 512, false)     \
  FLUXCCL_REDUCE_TWO_SHOTS(label, T, four_sentinel, SentinelRows<sizeof(T)>, 256, true) \
  FLUXCCL_REDUCE_KERNEL(bulk, label, 512)                                               \
  (const __grid_constant__ MappedPeers peers, const __grid_constant__ Reduction task,   \
   const __grid_constant__ Scratch scratch) {                                           \
    reduceBulk<T>(peers, task, scratch);                                                \
  }

FLUXCCL_REDUCE_SMALL(int8, signed char)
FLUXCCL_REDUCE_SMALL(uint8, uint8_t)
FLUXCCL_REDUCE_SMALL(int32, int32_t)
FLUXCCL_REDUCE_SMALL(uint32, uint32_t)
FLUXCCL_REDUCE_SMALL(half, Half)
FLUXCCL_REDUCE_SMALL(float, float)
FLUXCCL_REDUCE_SMALL(bfloat16, Bfloat16)
FLUXCCL_REDUCE_SMALL(f8e4m3, Float8E4m3)
FLUXCCL_REDUCE_SMALL(f8e5m2, Float8E5m2)

FLUXCCL_REDUCE_ANY(int8, signed char)
FLUXCCL_REDUCE_ANY(uint8, uint8_t)
FLUXCCL_REDUCE_ANY(int32, int32_t)
FLUXCCL_REDUCE_ANY(uint32, uint32_t)
FLUXCCL_REDUCE_ANY(int64, int64_t)
FLUXCCL_REDUCE_ANY(uint64, uint64_t)
FLUXCCL_REDUCE_ANY(half, Half)
FLUXCCL_REDUCE_ANY(float, float)
FLUXCCL_REDUCE_ANY(double, double)
FLUXCCL_REDUCE_ANY(bfloat16, Bfloat16)
FLUXCCL_REDUCE_ANY(f8e4m3, Float8E4m3)
FLUXCCL_REDUCE_ANY(f8e5m2, Float8E5m2)

FLUXCCL_REDUCE_FLOATS(half, Half)
FLUXCCL_REDUCE_FLOATS(float, float)
FLUXCCL_REDUCE_FLOATS(double, double)
FLUXCCL_REDUCE_FLOATS(bfloat16, Bfloat16)
FLUXCCL_REDUCE_FLOATS(f8e4m3, Float8E4m3)
FLUXCCL_REDUCE_FLOATS(f8e5m2, Float8E5m2)

// A barrier of all ranks, between copies. Work of every rank's stream before it is visible to the peers' work
// after it.
extern "C" __global__ void __launch_bounds__(32) fluxccl_reduce_meet(const __grid_constant__ MappedPeers peers) {
  const uint32_t epoch = beginEpoch(peers);
  endEpoch(peers, epoch, meet(peers, Point::ENTERED, epoch));
}
