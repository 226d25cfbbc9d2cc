// SPDX-License-Identifier: Apache-2.0
// The base of every header of FluxCCL's device API: fixed-width integers, qualifiers, the bounds
// check.
//
// The headers compile with nvcc, with NVRTC (which has no host headers), and, as far as layouts go,
// with any C++17 compiler. Device code requires compute capability 7.0 or higher.
#pragma once

#if defined(__CUDACC_RTC__)
namespace fluxccl {
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
}  // namespace fluxccl
#else
#include <cstddef>
#include <cstdint>

namespace fluxccl {
using std::int32_t;
using std::int64_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;
}  // namespace fluxccl
#endif

#if defined(__CUDACC__)
// Defined where device code is compiled; elsewhere the headers hold layouts only.
#define FLUXCCL_CUDA 1
#define FLUXCCL_DEVICE __device__ __forceinline__
// Not inlined: code that rarely runs, because in short kernels even skipped code costs time, and
// long code that is used in several places.
#define FLUXCCL_DEVICE_CALL __device__ __noinline__
#define FLUXCCL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define FLUXCCL_HOST_DEVICE inline
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "FluxCCL's device API wants compute capability 7.0 or higher"
#endif

// With FLUXCCL_DEBUG_BOUNDS a range outside its memory ends the kernel with a trap; otherwise
// nothing is checked.
#if defined(FLUXCCL_DEBUG_BOUNDS) && defined(__CUDA_ARCH__)
#define FLUXCCL_REQUIRE(condition) \
  do {                             \
    if (!(condition)) {            \
      __trap();                    \
    }                              \
  } while (false)
#else
#define FLUXCCL_REQUIRE(condition) static_cast<void>(0)
#endif

// Assert that a structure has the layout that the host writes. NVRTC before 13.4 cannot evaluate
// offsets; nvcc checks the offsets of the same structures.
#if defined(__CUDACC_RTC__)
#define FLUXCCL_ASSERT_OFFSET(type, member, offset) static_assert(true, "")
#else
#define FLUXCCL_ASSERT_OFFSET(type, member, offset) \
  static_assert(offsetof(type, member) == (offset), \
                #type "::" #member " is not where the host writes it")
#endif
#define FLUXCCL_ASSERT_SIZE(type, size) \
  static_assert(sizeof(type) == (size), #type " has not the size that the host writes")

namespace fluxccl {

// Returns whether length bytes from offset on lie within size bytes.
FLUXCCL_HOST_DEVICE bool isWithin(uint64_t offset, uint64_t length, uint64_t size) {
  return length <= size && offset <= size - length;
}

}  // namespace fluxccl
