// SPDX-License-Identifier: Apache-2.0
// The twin of fluxccl/atomics.cuh for the CPU: the same functions, the same orders.
#pragma once

#include "config.cuh"

namespace fluxccl {

#define FLUXCCL_DEFINE_ATOMICS(Scope, kScope, Type)                                  \
  FLUXCCL_DEVICE Type loadRelaxed##Scope(const Type* address) {                 \
    emulation_access(address, sizeof(Type), EMULATED_LOAD, EMULATED_RELAXED, kScope);                                                  \
    return __atomic_load_n(address, __ATOMIC_RELAXED);                          \
  }                                                                             \
  FLUXCCL_DEVICE Type loadAcquire##Scope(const Type* address) {                 \
    emulation_access(address, sizeof(Type), EMULATED_LOAD, EMULATED_ACQUIRE, kScope);                                                  \
    return __atomic_load_n(address, __ATOMIC_ACQUIRE);                          \
  }                                                                             \
  FLUXCCL_DEVICE void storeRelaxed##Scope(Type* address, Type value) {          \
    emulation_access(address, sizeof(Type), EMULATED_STORE, EMULATED_RELAXED, kScope);                                                   \
    __atomic_store_n(address, value, __ATOMIC_RELAXED);                         \
  }                                                                             \
  FLUXCCL_DEVICE void storeRelease##Scope(Type* address, Type value) {          \
    emulation_access(address, sizeof(Type), EMULATED_STORE, EMULATED_RELEASE, kScope);                                                   \
    __atomic_store_n(address, value, __ATOMIC_RELEASE);                         \
  }                                                                             \
  FLUXCCL_DEVICE void addRelaxed##Scope(Type* address, Type value) {            \
    emulation_access(address, sizeof(Type), EMULATED_CHANGE, EMULATED_RELAXED, kScope);                                                   \
    __atomic_fetch_add(address, value, __ATOMIC_RELAXED);                       \
  }                                                                             \
  FLUXCCL_DEVICE void addRelease##Scope(Type* address, Type value) {            \
    emulation_access(address, sizeof(Type), EMULATED_STORE, EMULATED_RELEASE, kScope);                                                   \
    __atomic_fetch_add(address, value, __ATOMIC_RELEASE);                       \
  }                                                                             \
  FLUXCCL_DEVICE void maxRelaxed##Scope(Type* address, Type value) {            \
    emulation_access(address, sizeof(Type), EMULATED_CHANGE, EMULATED_RELAXED, kScope);                                                   \
    Type before = __atomic_load_n(address, __ATOMIC_RELAXED);                   \
    while (before < value && !__atomic_compare_exchange_n(address, &before, value, false, __ATOMIC_RELAXED, \
                                                          __ATOMIC_RELAXED)) {  \
    }                                                                           \
  }                                                                             \
  FLUXCCL_DEVICE Type fetchAddRelaxed##Scope(Type* address, Type value) {       \
    emulation_access(address, sizeof(Type), EMULATED_CHANGE, EMULATED_RELAXED, kScope);                                                   \
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);                \
  }                                                                             \
  FLUXCCL_DEVICE Type fetchAddAcqRel##Scope(Type* address, Type value) {        \
    emulation_access(address, sizeof(Type), EMULATED_CHANGE, EMULATED_ACQUIRE | EMULATED_RELEASE, kScope);                                                   \
    return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);                \
  }

FLUXCCL_DEFINE_ATOMICS(Gpu, 0, uint32_t)
FLUXCCL_DEFINE_ATOMICS(Gpu, 0, uint64_t)
FLUXCCL_DEFINE_ATOMICS(Sys, 1, uint32_t)
FLUXCCL_DEFINE_ATOMICS(Sys, 1, uint64_t)
#undef FLUXCCL_DEFINE_ATOMICS

#define FLUXCCL_DEFINE_SMALL(Type)                                                   \
  FLUXCCL_DEVICE Type loadRelaxedSys(const Type* address) {                          \
    emulation_access(address, sizeof(Type), EMULATED_LOAD, EMULATED_RELAXED, 1);     \
    return __atomic_load_n(address, __ATOMIC_RELAXED);                               \
  }                                                                                  \
  FLUXCCL_DEVICE void storeRelaxedSys(Type* address, Type value) {                   \
    emulation_access(address, sizeof(Type), EMULATED_STORE, EMULATED_RELAXED, 1);    \
    __atomic_store_n(address, value, __ATOMIC_RELAXED);                              \
  }

FLUXCCL_DEFINE_SMALL(uint8_t)
FLUXCCL_DEFINE_SMALL(uint16_t)
#undef FLUXCCL_DEFINE_SMALL

// A reader that sees the second word also sees the first: no caller requires more of 16 bytes at once.
FLUXCCL_DEVICE void storeSixteen(void* address, uint64_t first, uint64_t second, int order) {
  uint64_t* words = static_cast<uint64_t*>(address);
  emulation_access(words, 16, EMULATED_STORE, order, 1);
  __atomic_store_n(words, first, __ATOMIC_RELEASE);
  __atomic_store_n(words + 1, second, __ATOMIC_RELEASE);
}

FLUXCCL_DEVICE void storeReleaseSys(void* address, uint64_t first, uint64_t second) {
  storeSixteen(address, first, second, EMULATED_RELEASE);
}

FLUXCCL_DEVICE void storeRelaxedSys(void* address, uint64_t first, uint64_t second) {
  storeSixteen(address, first, second, EMULATED_RELAXED);
}

FLUXCCL_DEVICE void storeWordsRelaxedSys(void* address, uint64_t first, uint64_t second) {
  storeSixteen(address, first, second, EMULATED_RELAXED);
}

FLUXCCL_DEVICE void loadWordsRelaxedSys(const void* address, uint64_t& first, uint64_t& second) {
  const uint64_t* words = static_cast<const uint64_t*>(address);
  emulation_access(words, 16, EMULATED_LOAD, EMULATED_RELAXED, 1);
  second = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
  first = __atomic_load_n(words, __ATOMIC_ACQUIRE);
}

// All 16 bytes at once, as the GPU's hardware moves them; a CPU with AVX does so too.
typedef uint32_t Sixteen __attribute__((vector_size(16), may_alias));

FLUXCCL_DEVICE void storeRelaxedSys(uint4* address, uint4 value) {
  emulation_access(address, 16, EMULATED_STORE, EMULATED_RELAXED, 1);
  Sixteen all;
  memcpy(&all, &value, sizeof(all));
  *reinterpret_cast<volatile Sixteen*>(address) = all;
}

FLUXCCL_DEVICE uint4 loadRelaxedSys(const uint4* address) {
  emulation_access(address, 16, EMULATED_LOAD, EMULATED_RELAXED, 1);
  const Sixteen all = *reinterpret_cast<const volatile Sixteen*>(address);
  uint4 value;
  memcpy(&value, &all, sizeof(value));
  return value;
}

FLUXCCL_DEVICE void storeLineRelaxedSys(uint4* mine, uint4 value) {
  emulation_access(mine, 16, EMULATED_STORE, EMULATED_RELAXED, 1);
  emulated_self->exchange = {EXCHANGE_STORE_LINE, 0, mine, {}};
  memcpy(emulated_self->exchange.words, &value, sizeof(value));
  emulation_exchange(0xffu << emulated_self->number % 32 / 8 * 8);
}

FLUXCCL_DEVICE uint4 loadLineRelaxedSys(const uint4* mine) {
  emulation_access(mine, 16, EMULATED_LOAD, EMULATED_RELAXED, 1);
  emulated_self->exchange = {EXCHANGE_LOAD_LINE, 0, const_cast<uint4*>(mine), {}};
  emulation_exchange(0xffu << emulated_self->number % 32 / 8 * 8);
  uint4 value;
  memcpy(&value, emulated_self->exchange.words, sizeof(value));
  return value;
}

FLUXCCL_DEVICE void fenceAcqRelGpu() { emulation_fence(0); }
FLUXCCL_DEVICE void fenceAcqRelSys() { emulation_fence(1); }

}  // namespace fluxccl
