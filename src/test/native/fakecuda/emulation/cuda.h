// SPDX-License-Identifier: Apache-2.0
// CUDA C++ for the CPU, as far as device code of this project uses it. The compiler includes it before each .cu file.
// Requests of a thread to other threads are in ../emulation.h.
#ifndef FLUXCCL_EMULATED_CUDA_H
#define FLUXCCL_EMULATED_CUDA_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <type_traits>

#include "emulation.h"

#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDA_ARCH__ 900

#define __host__
#define __device__
// build looks for these two words in what the preprocessor makes of a source.
#define __global__ __attribute__((fluxccl_global))
#define __launch_bounds__(threads, ...) __attribute__((fluxccl_bounds(threads)))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __grid_constant__
#define __constant__ static const
// Thread-local variables of the library that is made of the kernels lie in the running block's memory: see shared.cpp.
#define __shared__ thread_local
#define __align__(n) alignas(n)

#define threadIdx (emulated_self->index)
#define blockIdx (emulated_self->block->index)
#define blockDim (emulated_self->block->size)
#define gridDim (emulated_self->block->grid)
constexpr int warpSize = 32;

#define FLUXCCL_VECTOR(name, T, alignment)                            \
  struct alignas(alignment / 2) name##2 {                             \
    T x, y;                                                           \
  };                                                                  \
  struct name##3 {                                                    \
    T x, y, z;                                                        \
  };                                                                  \
  struct alignas(alignment > 16 ? 16 : alignment) name##4 {           \
    T x, y, z, w;                                                     \
  };                                                                  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }          \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

FLUXCCL_VECTOR(char, signed char, 4)
FLUXCCL_VECTOR(uchar, unsigned char, 4)
FLUXCCL_VECTOR(short, short, 8)
FLUXCCL_VECTOR(ushort, unsigned short, 8)
FLUXCCL_VECTOR(int, int, 16)
FLUXCCL_VECTOR(uint, unsigned, 16)
FLUXCCL_VECTOR(longlong, long long, 32)
FLUXCCL_VECTOR(ulonglong, unsigned long long, 32)
FLUXCCL_VECTOR(float, float, 16)
FLUXCCL_VECTOR(double, double, 32)
#undef FLUXCCL_VECTOR

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a);
}

namespace fluxccl_emulated {

template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "another size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

template <class T>
uint64_t word(T value) {
  static_assert(sizeof(T) <= 8, "lanes exchange 8 bytes at most");
  uint64_t word = 0;
  memcpy(&word, &value, sizeof(T));
  return word;
}

template <class T>
T ofWord(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}

inline uint64_t exchange(unsigned mask, int operation, uint64_t value, uint32_t lane = 0) {
  emulated_self->exchange = {operation, lane, nullptr, {value, 0}};
  emulation_exchange(mask);
  return emulated_self->exchange.words[0];
}

template <class T>
T shuffle(unsigned mask, T value, int lane) {
  return ofWord<T>(exchange(mask, EXCHANGE_SHUFFLE, word(value), static_cast<uint32_t>(lane)));
}

inline int lane() { return static_cast<int>(emulated_self->number % 32); }

// A lane of its own segment, or else oneself.
inline int within(int wanted, int width) {
  return wanted >= lane() / width * width && wanted < lane() / width * width + width ? wanted : lane();
}

}  // namespace fluxccl_emulated

// A GPU holds -0 to be less than +0; the C library takes either.
namespace fluxccl_emulated {
template <class T>
T least(T a, T b) {
  return a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
}
template <class T>
T most(T a, T b) {
  return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
}
}  // namespace fluxccl_emulated
#define fminf(a, b) fluxccl_emulated::least<float>(a, b)
#define fmaxf(a, b) fluxccl_emulated::most<float>(a, b)
#define fmin(a, b) fluxccl_emulated::least<double>(a, b)
#define fmax(a, b) fluxccl_emulated::most<double>(a, b)

inline void __syncthreads() { emulation_sync(0, 0, true, true); }
inline int __syncthreads_and(int predicate) { return emulation_sync(0, 0, !predicate, true) == 0; }
inline int __syncthreads_or(int predicate) { return emulation_sync(0, 0, predicate != 0, true) != 0; }
inline int __syncthreads_count(int predicate) {
  return static_cast<int>(emulation_sync(0, 0, predicate != 0, true));
}

inline void __syncwarp(unsigned mask = 0xffffffffu) { fluxccl_emulated::exchange(mask, EXCHANGE_SYNC, 0); }
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int first = fluxccl_emulated::lane() / width * width;
  return fluxccl_emulated::shuffle(mask, value, first + (from & (width - 1)));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return fluxccl_emulated::shuffle(mask, value, fluxccl_emulated::within(fluxccl_emulated::lane() - static_cast<int>(delta), width));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return fluxccl_emulated::shuffle(mask, value, fluxccl_emulated::within(fluxccl_emulated::lane() + static_cast<int>(delta), width));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
  return fluxccl_emulated::shuffle(mask, value, fluxccl_emulated::within(fluxccl_emulated::lane() ^ other, width));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(fluxccl_emulated::exchange(mask, EXCHANGE_BALLOT, predicate != 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  return static_cast<unsigned>(fluxccl_emulated::exchange(mask, EXCHANGE_MATCH, fluxccl_emulated::word(value)));
}
#define FLUXCCL_REDUCE(name, operation)                                                                 \
  inline unsigned __reduce_##name##_sync(unsigned mask, unsigned value) {                               \
    return static_cast<unsigned>(fluxccl_emulated::exchange(mask, operation, value));                   \
  }                                                                                                     \
  inline int __reduce_##name##_sync(unsigned mask, int value) {                                         \
    return static_cast<int>(fluxccl_emulated::exchange(mask, operation, static_cast<uint64_t>(int64_t{value}))); \
  }
FLUXCCL_REDUCE(add, EXCHANGE_ADD)
FLUXCCL_REDUCE(min, EXCHANGE_MIN)
FLUXCCL_REDUCE(max, EXCHANGE_MAX)
FLUXCCL_REDUCE(and, EXCHANGE_AND)
FLUXCCL_REDUCE(or, EXCHANGE_OR)
FLUXCCL_REDUCE(xor, EXCHANGE_XOR)
#undef FLUXCCL_REDUCE
// Which lanes come together is chance; alone each may be.
inline unsigned __activemask() { return 1u << fluxccl_emulated::lane(); }

inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
inline int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value)); }
inline unsigned __brev(unsigned value) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (value >> i & 1u) << (31 - i);
  return result;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned chosen = selector >> (4 * i) & 0xf;
    unsigned byte = static_cast<unsigned>(both >> (8 * (chosen & 7))) & 0xff;
    if (chosen & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }

inline float __uint_as_float(unsigned value) { return fluxccl_emulated::bits<float>(value); }
inline unsigned __float_as_uint(float value) { return fluxccl_emulated::bits<unsigned>(value); }
inline float __int_as_float(int value) { return fluxccl_emulated::bits<float>(value); }
inline int __float_as_int(float value) { return fluxccl_emulated::bits<int>(value); }
inline double __longlong_as_double(long long value) { return fluxccl_emulated::bits<double>(value); }
inline long long __double_as_longlong(double value) { return fluxccl_emulated::bits<long long>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline float __expf(float value) { return std::exp(value); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }

inline size_t __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
inline void* __cvta_global_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
inline size_t __cvta_generic_to_shared(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
inline void* __cvta_shared_to_generic(size_t address) { return reinterpret_cast<void*>(address); }

template <class T>
T __ldg(const T* address) { return *address; }
template <class T>
T __ldcg(const T* address) { return *address; }
template <class T>
T __ldcs(const T* address) { return *address; }
template <class T>
T __ldcv(const T* address) { emulation_access(address, sizeof(T), EMULATED_LOAD, EMULATED_RELAXED, 1); return *const_cast<const volatile T*>(address); }
template <class T>
void __stcg(T* address, T value) { *address = value; }
template <class T>
void __stcs(T* address, T value) { *address = value; }
template <class T>
void __stwt(T* address, T value) { *address = value; }

inline void __threadfence_block() { emulation_fence(0); }
inline void __threadfence() { emulation_fence(0); }
inline void __threadfence_system() { emulation_fence(1); }
inline void __nanosleep(unsigned) { emulation_give_way(); }
[[noreturn]] inline void __trap() { emulation_trap(); }
inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

namespace fluxccl_emulated {
template <class T, class Next>
T change(T* address, int scope, Next next) {
  emulation_access(address, sizeof(T), EMULATED_CHANGE, EMULATED_RELAXED, scope);
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &before, next(before), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}
}  // namespace fluxccl_emulated

#define FLUXCCL_ATOMIC_OF_SCOPE(name, scope, expression)                                        \
  template <class T>                                                                           \
  T name(T* address, std::common_type_t<T> value) {                                            \
    return fluxccl_emulated::change(address, scope, [=](T before) -> T { return expression; }); \
  }
#define FLUXCCL_ATOMIC(name, expression)                    \
  FLUXCCL_ATOMIC_OF_SCOPE(atomic##name, 0, expression)        \
  FLUXCCL_ATOMIC_OF_SCOPE(atomic##name##_block, 0, expression) \
  FLUXCCL_ATOMIC_OF_SCOPE(atomic##name##_system, 1, expression)
FLUXCCL_ATOMIC(Add, before + value)
FLUXCCL_ATOMIC(Sub, before - value)
FLUXCCL_ATOMIC(Max, before < value ? value : before)
FLUXCCL_ATOMIC(Min, value < before ? value : before)
FLUXCCL_ATOMIC(Exch, (static_cast<void>(before), value))
FLUXCCL_ATOMIC(And, before & value)
FLUXCCL_ATOMIC(Or, before | value)
FLUXCCL_ATOMIC(Xor, before ^ value)
#undef FLUXCCL_ATOMIC
#undef FLUXCCL_ATOMIC_OF_SCOPE
template <class T>
T atomicCAS(T* address, std::common_type_t<T> expected, std::common_type_t<T> value) {
  emulation_access(address, sizeof(T), EMULATED_CHANGE, EMULATED_RELAXED, 1);
  T found = expected;
  __atomic_compare_exchange_n(address, &found, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return found;
}
template <class T>
T atomicCAS_system(T* address, std::common_type_t<T> expected, std::common_type_t<T> value) {
  return atomicCAS(address, expected, value);
}

#endif
