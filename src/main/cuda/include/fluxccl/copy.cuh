// SPDX-License-Identifier: Apache-2.0
// Copying by many threads together.
#pragma once

#include "config.cuh"

#if defined(FLUXCCL_CUDA)

namespace fluxccl {

namespace detail {

template <int kBytes>
struct UnitOf;

template <>
struct UnitOf<1> {
  using Type = uint8_t;
};

template <>
struct UnitOf<4> {
  using Type = uint32_t;
};

template <>
struct UnitOf<8> {
  using Type = uint2;
};

template <>
struct UnitOf<16> {
  using Type = uint4;
};

// A pointer that the compiler knows to be to global memory: that avoids generic loads and stores.
template <class T>
FLUXCCL_DEVICE T* globalPointer(uint64_t address) {
  return static_cast<T*>(__cvta_global_to_generic(address));
}

// Copies whole units between addresses that are multiples of them. kUnroll: how many units a thread
// loads before it stores the first. A link is saturated only while many loads are in flight.
template <int kBytes, int kUnroll>
FLUXCCL_DEVICE void copyUnits(uint64_t to, uint64_t from, uint64_t units, uint32_t threadId,
                              uint32_t numThreads) {
  using Unit = typename UnitOf<kBytes>::Type;
  Unit* out = globalPointer<Unit>(to);
  const Unit* in = globalPointer<const Unit>(from);
  const uint64_t stride = numThreads;
  uint64_t at = threadId;
  while (at + (kUnroll - 1) * stride < units) {
    Unit values[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      values[i] = in[at + i * stride];
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      out[at + i * stride] = values[i];
    }
    at += kUnroll * stride;
  }
  // Fewer than kUnroll are left: again all loads, then all stores. They have variables of their
  // own; otherwise the compiler would keep the loop's values for units that are not loaded here.
  Unit values[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll - 1; ++i) {
    if (at + i * stride < units) {
      values[i] = in[at + i * stride];
    }
  }
#pragma unroll
  for (int i = 0; i < kUnroll - 1; ++i) {
    if (at + i * stride < units) {
      out[at + i * stride] = values[i];
    }
  }
}

FLUXCCL_DEVICE void copyBytes(uint64_t to, uint64_t from, uint64_t size, uint32_t threadId,
                              uint32_t numThreads) {
  uint8_t* out = globalPointer<uint8_t>(to);
  const uint8_t* in = globalPointer<const uint8_t>(from);
#pragma unroll 1
  for (uint64_t at = threadId; at < size; at += numThreads) {
    out[at] = in[at];
  }
}

// Copies between addresses of the same alignment within a unit: single bytes up to the first whole
// unit and after the last one.
template <int kBytes, int kUnroll>
FLUXCCL_DEVICE void copyAlike(uint64_t to, uint64_t from, uint64_t size, uint32_t threadId,
                              uint32_t numThreads) {
  const uint64_t misaligned = (0 - to) % kBytes;
  const uint64_t head = misaligned < size ? misaligned : size;
  const uint64_t units = (size - head) / kBytes;
  copyUnits<kBytes, kUnroll>(to + head, from + head, units, threadId, numThreads);
  const uint64_t done = head + units * kBytes;
  if (head != 0) {
    copyBytes(to, from, head, threadId, numThreads);
  }
  if (done != size) {
    copyBytes(to + done, from + done, size - done, threadId, numThreads);
  }
}

}  // namespace detail

// Copies size bytes of global memory, this GPU's, a peer's or the host's; numThreads threads call it
// together, each with its own threadId, and each does its share. The ranges must not overlap.
//
// kAlignment, 4, 8 or 16, is the unit that is moved at once. If the two addresses have different
// alignments within it, 4 bytes or single bytes are moved at once, which is slow. Bytes beyond the
// last whole kAlignment bytes of size are copied if kCopyRemainder is true.
template <int kAlignment = 16, bool kCopyRemainder = true, int kUnroll = 8>
FLUXCCL_DEVICE void copy(void* to, const void* from, uint64_t size, uint32_t threadId,
                         uint32_t numThreads) {
  static_assert(kAlignment == 4 || kAlignment == 8 || kAlignment == 16,
                "alignment is 4, 8 or 16");
  const uint64_t out = __cvta_generic_to_global(to);
  const uint64_t in = __cvta_generic_to_global(from);
  const uint64_t end = kCopyRemainder ? size : size / kAlignment * kAlignment;
  if ((out - in) % kAlignment == 0) {
    detail::copyAlike<kAlignment, kAlignment == 16 ? kUnroll : 4>(out, in, end, threadId, numThreads);
  } else if (kAlignment > 4 && (out - in) % 4 == 0) {
    detail::copyAlike<4, 4>(out, in, end, threadId, numThreads);
  } else {
    detail::copyBytes(out, in, end, threadId, numThreads);
  }
}

}  // namespace fluxccl

#endif  // FLUXCCL_CUDA
