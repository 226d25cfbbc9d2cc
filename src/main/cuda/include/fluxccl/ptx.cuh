// SPDX-License-Identifier: Apache-2.0
// Instructions that CUDA C++ has no name for, other than the memory accesses of atomics.cuh. Device
// code of FluxCCL has inline PTX in these two headers and in products/wgmma.cuh only.
#pragma once

#include "config.cuh"

#if defined(FLUXCCL_CUDA)

namespace fluxccl {

// Index of this thread in its warp.
FLUXCCL_DEVICE uint32_t laneId() {
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Called in every loop that waits for other threads. On a GPU it does nothing, because the other
// threads run on.
FLUXCCL_DEVICE void betweenPolls() {}

// Nanoseconds since some time in the past, of a clock that all blocks share; it may advance in steps of
// a microsecond.
FLUXCCL_DEVICE uint64_t globalTimer() {
  uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
  return nanoseconds;
}

// __syncthreads() for some warps of the block: waits until numThreads threads, a multiple of 32, have
// called it or arriveAtBarrier for the same barrier, 1 to 15.
FLUXCCL_DEVICE void syncBarrier(uint32_t barrier, uint32_t numThreads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(numThreads) : "memory");
}

FLUXCCL_DEVICE void arriveAtBarrier(uint32_t barrier, uint32_t numThreads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(numThreads) : "memory");
}

// The shared memory whose size the launch gives, aligned to 128 bytes.
FLUXCCL_DEVICE uint8_t* dynamicShared() {
  extern __shared__ uint4 fluxcclDynamicShared[];
  return reinterpret_cast<uint8_t*>(fluxcclDynamicShared);
}

// IEEE 754 binary16 by its bits, to a float and back, to the nearest, ties to even.
FLUXCCL_DEVICE float halfToFloat(unsigned short half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}

FLUXCCL_DEVICE unsigned short floatToHalf(float value) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}

// Adds two numbers at once, each sum rounded like that.
FLUXCCL_DEVICE uint32_t addHalfPairs(uint32_t a, uint32_t b) {
  uint32_t sums;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  return sums;
}

// A float to the nearest bfloat16, ties to even; NaNs become 0x7fff.
FLUXCCL_DEVICE unsigned short floatToBfloat16(float value) {
#if __CUDA_ARCH__ >= 800
  unsigned short rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#else
  const uint32_t bits = __float_as_uint(value);
  return value != value ? 0x7fff : static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

// Adds two bfloat16 numbers at once, where the GPU can.
#if __CUDA_ARCH__ >= 900
constexpr bool kAddsBfloat16Pairs = true;
FLUXCCL_DEVICE uint32_t addBfloat16Pairs(uint32_t a, uint32_t b) {
  uint32_t sums;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  return sums;
}
#else
constexpr bool kAddsBfloat16Pairs = false;
FLUXCCL_DEVICE uint32_t addBfloat16Pairs(uint32_t, uint32_t) { return 0; }
#endif

// Two floats to E4M3, to the nearest, ties to even; beyond the largest number to that, NaNs to 0x7f. In compute
// capability 8.9 and later.
#if __CUDA_ARCH__ >= 890
constexpr bool kNarrowsToFloat8Pairs = true;
FLUXCCL_DEVICE uint16_t floatsToE4m3(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
#else
constexpr bool kNarrowsToFloat8Pairs = false;
FLUXCCL_DEVICE uint16_t floatsToE4m3(float, float) { return 0; }
#endif

// Loads global memory that is not read again, past the first-level cache.
FLUXCCL_DEVICE uint4 loadOnce(const uint4* address) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
  return value;
}

// Brings the line of global memory into the second-level cache; harmless if others write to it.
FLUXCCL_DEVICE void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)) : "memory");
}

// From here on, instructions of compute capability 9.0. On older GPUs, kernels that call them end
// with a trap.
#if __CUDA_ARCH__ >= 900
#define FLUXCCL_PTX_90(...) asm volatile(__VA_ARGS__)
#else
#define FLUXCCL_PTX_90(...) __trap()
#endif

// If launches may overlap: allows the next launch to begin, as far as this block is concerned.
// Without that attribute of the launch it does nothing.
FLUXCCL_DEVICE void letNextLaunchBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the previous launch has ended and its writes are visible.
FLUXCCL_DEVICE void awaitLaunchBefore() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

FLUXCCL_DEVICE uint32_t sharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// A barrier in shared memory that also counts bytes which arrive by bulkLoad. Its phases take turns:
// the first has parity 0. A phase is over when all arrivals and all expected bytes are there.
struct TransactionBarrier {
  uint64_t state;

  // By one thread; then fenceBarrierInit(), and a __syncthreads() before others use it.
  FLUXCCL_DEVICE void init(uint32_t arrivals) {
    FLUXCCL_PTX_90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(this)), "r"(arrivals)
                   : "memory");
  }

  // Arrives, and releases this thread's earlier accesses to threads that see the end of the phase.
  FLUXCCL_DEVICE void arrive() {
    FLUXCCL_PTX_90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(this)) : "memory");
  }

  // Arrives, and makes the phase wait for `bytes` more bytes.
  FLUXCCL_DEVICE void arriveAndExpect(uint32_t bytes) {
    FLUXCCL_PTX_90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(this)),
                   "r"(bytes)
                   : "memory");
  }

  // Whether the phase of that parity is over, with acquire; may wait a little for it.
  FLUXCCL_DEVICE bool isOver(uint32_t parity) {
    uint32_t over = 0;
    FLUXCCL_PTX_90(
        "{\n\t"
        ".reg .pred over;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, over;\n\t"
        "}"
        : "=r"(over)
        : "r"(sharedAddress(this)), "r"(parity)
        : "memory");
    return over != 0;
  }
};

// Makes initialised barriers visible to bulk copies.
FLUXCCL_DEVICE void fenceBarrierInit() {
  FLUXCCL_PTX_90("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders this thread's loads and stores against bulk copies, in both directions.
FLUXCCL_DEVICE void fenceBulk() { FLUXCCL_PTX_90("fence.proxy.async;" ::: "memory"); }

// As fenceBulk(), for shared memory only. Call it after stores that a bulkStore will read.
FLUXCCL_DEVICE void fenceBulkShared() {
  FLUXCCL_PTX_90("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies global memory to shared memory asynchronously; the barrier counts the bytes. Addresses and
// bytes are multiples of 16.
FLUXCCL_DEVICE void bulkLoad(void* shared, const void* global, uint32_t bytes,
                             TransactionBarrier* barrier) {
  FLUXCCL_PTX_90(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          sharedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(sharedAddress(barrier))
      : "memory");
}

// bulkLoad of memory that is read once: the second-level cache evicts it first.
FLUXCCL_DEVICE void bulkLoadOnce(void* shared, const void* global, uint32_t bytes,
                                 TransactionBarrier* barrier) {
  FLUXCCL_PTX_90(
      "{\n\t"
      ".reg .b64 policy;\n\t"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n\t"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
      "policy;\n\t"
      "}" ::"r"(sharedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(sharedAddress(barrier))
      : "memory");
}

// Copies shared memory to global memory, this GPU's or a peer's, asynchronously.
FLUXCCL_DEVICE void bulkStore(void* global, const void* shared, uint32_t bytes) {
  FLUXCCL_PTX_90("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(global)),
                 "r"(sharedAddress(shared)), "r"(bytes)
                 : "memory");
}

// Makes a group of this thread's bulkStores since the previous group.
FLUXCCL_DEVICE void bulkCommit() { FLUXCCL_PTX_90("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but the last kGroups groups of this thread have read their shared memory.
template <int kGroups>
FLUXCCL_DEVICE void bulkWaitRead() {
  FLUXCCL_PTX_90("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

// Waits until all but the last kGroups groups of this thread have been written.
template <int kGroups>
FLUXCCL_DEVICE void bulkWait() {
  FLUXCCL_PTX_90("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}

#undef FLUXCCL_PTX_90

}  // namespace fluxccl

#endif  // FLUXCCL_CUDA
