// SPDX-License-Identifier: Apache-2.0
// The twin of fluxccl/ptx.cuh for the CPU.
#pragma once

#include "config.cuh"

namespace fluxccl {

FLUXCCL_DEVICE uint32_t laneId() { return emulated_self->number % 32; }

FLUXCCL_DEVICE void betweenPolls() { emulation_give_way(); }

FLUXCCL_DEVICE uint64_t globalTimer() { return static_cast<uint64_t>(clock64()); }

FLUXCCL_DEVICE void syncBarrier(uint32_t barrier, uint32_t numThreads) {
  emulation_sync(barrier, numThreads, true, true);
}

FLUXCCL_DEVICE void arriveAtBarrier(uint32_t barrier, uint32_t numThreads) {
  emulation_sync(barrier, numThreads, true, false);
}

FLUXCCL_DEVICE uint8_t* dynamicShared() { return emulated_self->block->dynamic_shared; }

FLUXCCL_DEVICE float halfToFloat(unsigned short half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) {
    // The hardware's NaN: quiet, with no other bits set.
    return __uint_as_float(fraction != 0 ? 0x7fffffffu : sign | 0x7f800000u);
  }
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

FLUXCCL_DEVICE unsigned short floatToHalf(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return 0x7fff;
  }
  if (magnitude >= 0x477ff000u) {
    // Infinity, from the middle between the largest number and the next one on.
    return static_cast<unsigned short>(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) {
    // Below the smallest normal number: float arithmetic rounds it, in units of 2^-24.
    const float units = __uint_as_float(magnitude) * 0x1p24f;
    return static_cast<unsigned short>(sign | static_cast<uint32_t>(nearbyintf(units)));
  }
  const uint32_t rebased = magnitude - 0x38000000u;
  return static_cast<unsigned short>(sign | ((rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13));
}

FLUXCCL_DEVICE unsigned short floatToBfloat16(float value) {
  const uint32_t bits = __float_as_uint(value);
  return value != value ? 0x7fff : static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

FLUXCCL_DEVICE uint32_t addHalfPairs(uint32_t a, uint32_t b) {
  const auto sum = [=](int shift) {
    return static_cast<uint32_t>(floatToHalf(halfToFloat(static_cast<unsigned short>(a >> shift)) +
                                             halfToFloat(static_cast<unsigned short>(b >> shift))));
  };
  return sum(0) | sum(16) << 16;
}

constexpr bool kAddsBfloat16Pairs = true;
FLUXCCL_DEVICE uint32_t addBfloat16Pairs(uint32_t a, uint32_t b) {
  const uint32_t low = floatToBfloat16(__uint_as_float(a << 16) + __uint_as_float(b << 16));
  const uint32_t high = floatToBfloat16(__uint_as_float(a & 0xffff0000u) + __uint_as_float(b & 0xffff0000u));
  return low | high << 16;
}

constexpr bool kNarrowsToFloat8Pairs = false;
FLUXCCL_DEVICE uint16_t floatsToE4m3(float, float) { return 0; }

FLUXCCL_DEVICE uint4 loadOnce(const uint4* address) { return *address; }

FLUXCCL_DEVICE void prefetch(const void*) {}

// Launches never overlap here, but kernels must call this all the same.
FLUXCCL_DEVICE void letNextLaunchBegin() {}
FLUXCCL_DEVICE void awaitLaunchBefore() { emulation_await_launch_before(); }

struct TransactionBarrier {
  uint64_t state;

  FLUXCCL_DEVICE void init(uint32_t arrivals) { emulation_barrier_init(&state, arrivals); }
  FLUXCCL_DEVICE void arrive() { emulation_barrier_arrive(&state, 1, 0); }
  FLUXCCL_DEVICE void arriveAndExpect(uint32_t bytes) {
    emulation_barrier_arrive(&state, 1, static_cast<int32_t>(bytes));
  }
  FLUXCCL_DEVICE bool isOver(uint32_t parity) {
    if (!emulation_barrier_is_over(&state, parity)) {
      emulation_give_way();
    }
    return emulation_barrier_is_over(&state, parity);
  }
};

FLUXCCL_DEVICE void fenceBarrierInit() {}
FLUXCCL_DEVICE void fenceBulk() {}
FLUXCCL_DEVICE void fenceBulkShared() {}

FLUXCCL_DEVICE void bulkLoad(void* shared, const void* global, uint32_t bytes, TransactionBarrier* barrier) {
  emulation_bulk(shared, global, bytes, &barrier->state);
}

FLUXCCL_DEVICE void bulkStore(void* global, const void* shared, uint32_t bytes) {
  emulation_bulk(global, shared, bytes, nullptr);
}

FLUXCCL_DEVICE void bulkCommit() { emulation_bulk_commit(); }

template <int kGroups>
FLUXCCL_DEVICE void bulkWaitRead() {
  emulation_bulk_wait(kGroups);
}

template <int kGroups>
FLUXCCL_DEVICE void bulkWait() {
  emulation_bulk_wait(kGroups);
}

}  // namespace fluxccl
