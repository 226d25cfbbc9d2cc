// SPDX-License-Identifier: Apache-2.0
// Functions that the compiler calls before every access of a kernel with -fsanitize=thread. They replace that sanitizer's
// library, which supports neither fibers nor GPUs. Accesses of atomics.cuh are reported there.
#include <cstddef>
#include <cstdint>

#include "emulation.h"

#define HIDDEN extern "C" __attribute__((visibility("hidden")))
#define HERE __builtin_return_address(0)

#define FLUXCCL_ACCESS(bytes)                                                                                      \
  HIDDEN void __tsan_read##bytes(void* at) { emulation_plain_access(at, bytes, false, HERE); }                     \
  HIDDEN void __tsan_write##bytes(void* at) { emulation_plain_access(at, bytes, true, HERE); }                     \
  HIDDEN void __tsan_unaligned_read##bytes(void* at) { emulation_plain_access(at, bytes, false, HERE); }           \
  HIDDEN void __tsan_unaligned_write##bytes(void* at) { emulation_plain_access(at, bytes, true, HERE); }           \
  HIDDEN void __tsan_volatile_read##bytes(void*) {}                                                                \
  HIDDEN void __tsan_volatile_write##bytes(void*) {}                                                               \
  HIDDEN void __tsan_unaligned_volatile_read##bytes(void*) {}                                                      \
  HIDDEN void __tsan_unaligned_volatile_write##bytes(void*) {}
FLUXCCL_ACCESS(1)
FLUXCCL_ACCESS(2)
FLUXCCL_ACCESS(4)
FLUXCCL_ACCESS(8)
FLUXCCL_ACCESS(16)

HIDDEN void __tsan_read_range(void* at, size_t bytes) {
  emulation_plain_access(at, static_cast<uint32_t>(bytes), false, HERE);
}
HIDDEN void __tsan_write_range(void* at, size_t bytes) {
  emulation_plain_access(at, static_cast<uint32_t>(bytes), true, HERE);
}
HIDDEN void __tsan_init() {}
HIDDEN void __tsan_func_entry(void*) {}
HIDDEN void __tsan_func_exit() {}
HIDDEN void __tsan_vptr_update(void**, void*) {}
HIDDEN void __tsan_vptr_read(void**) {}
HIDDEN void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define FLUXCCL_ATOMIC(bits, T)                                                                          \
  HIDDEN T __tsan_atomic##bits##_load(const volatile T* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); } \
  HIDDEN void __tsan_atomic##bits##_store(volatile T* at, T value, int) {                                \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                      \
  HIDDEN T __tsan_atomic##bits##_exchange(volatile T* at, T value, int) {                                \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                      \
  HIDDEN T __tsan_atomic##bits##_fetch_add(volatile T* at, T value, int) {                               \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                      \
  HIDDEN bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T value, int, int) { \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }                                                                                                      \
  HIDDEN T __tsan_atomic##bits##_compare_exchange_val(volatile T* at, T expected, T value, int, int) {   \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    return expected;                                                                                     \
  }
FLUXCCL_ATOMIC(8, uint8_t)
FLUXCCL_ATOMIC(16, uint16_t)
FLUXCCL_ATOMIC(32, uint32_t)
FLUXCCL_ATOMIC(64, uint64_t)
