// SPDX-License-Identifier: Apache-2.0
// Loads, stores and read-modify-writes with their memory order and scope in the name. All addresses
// are of global memory: this GPU's, a peer's or pinned host memory.
//
// Relaxed accesses are single and never stale, but order nothing. An acquire load that sees a
// release (store or reduction) of the same word also sees all accesses before the release. Gpu
// covers the threads of this GPU; Sys also those of other GPUs and of the host.
#pragma once

#include "config.cuh"

#if defined(FLUXCCL_CUDA)

// Plain PTX, because NVRTC does not find <cuda/atomic> without an include path.
#define FLUXCCL_DEFINE_LOAD(name, instruction, Type, suffix, constraint) \
  FLUXCCL_DEVICE Type name(const Type* address) {                        \
    Type value;                                                          \
    asm volatile(instruction ".global." suffix " %0, [%1];"              \
                 : "=" constraint(value)                                 \
                 : "l"(__cvta_generic_to_global(address))                \
                 : "memory");                                            \
    return value;                                                        \
  }

#define FLUXCCL_DEFINE_STORE(name, instruction, Type, suffix, constraint)     \
  FLUXCCL_DEVICE void name(Type* address, Type value) {                       \
    asm volatile(instruction "." suffix " [%0], %1;"                          \
                 :                                                            \
                 : "l"(__cvta_generic_to_global(address)), constraint(value) \
                 : "memory");                                                 \
  }

#define FLUXCCL_DEFINE_FETCH(name, instruction, Type, suffix, constraint)     \
  FLUXCCL_DEVICE Type name(Type* address, Type value) {                       \
    Type before;                                                              \
    asm volatile(instruction "." suffix " %0, [%1], %2;"                      \
                 : "=" constraint(before)                                     \
                 : "l"(__cvta_generic_to_global(address)), constraint(value) \
                 : "memory");                                                 \
    return before;                                                            \
  }

#define FLUXCCL_DEFINE_ATOMICS(Scope, scope, Type, bits, number, constraint)                        \
  FLUXCCL_DEFINE_LOAD(loadRelaxed##Scope, "ld.relaxed." scope, Type, bits, constraint)              \
  FLUXCCL_DEFINE_LOAD(loadAcquire##Scope, "ld.acquire." scope, Type, bits, constraint)              \
  FLUXCCL_DEFINE_STORE(storeRelaxed##Scope, "st.relaxed." scope ".global", Type, bits, constraint)  \
  FLUXCCL_DEFINE_STORE(storeRelease##Scope, "st.release." scope ".global", Type, bits, constraint)  \
  FLUXCCL_DEFINE_STORE(addRelaxed##Scope, "red.relaxed." scope ".global.add", Type, number,         \
                       constraint)                                                                  \
  FLUXCCL_DEFINE_STORE(addRelease##Scope, "red.release." scope ".global.add", Type, number,         \
                       constraint)                                                                  \
  FLUXCCL_DEFINE_STORE(maxRelaxed##Scope, "red.relaxed." scope ".global.max", Type, number,         \
                       constraint)                                                                  \
  FLUXCCL_DEFINE_FETCH(fetchAddRelaxed##Scope, "atom.relaxed." scope ".global.add", Type, number,   \
                       constraint)                                                                  \
  FLUXCCL_DEFINE_FETCH(fetchAddAcqRel##Scope, "atom.acq_rel." scope ".global.add", Type, number,    \
                       constraint)

namespace fluxccl {

FLUXCCL_DEFINE_ATOMICS(Gpu, "gpu", uint32_t, "b32", "u32", "r")
FLUXCCL_DEFINE_ATOMICS(Gpu, "gpu", uint64_t, "b64", "u64", "l")
FLUXCCL_DEFINE_ATOMICS(Sys, "sys", uint32_t, "b32", "u32", "r")
FLUXCCL_DEFINE_ATOMICS(Sys, "sys", uint64_t, "b64", "u64", "l")

// Single bytes and pairs of them. There is no register of 8 bits.
FLUXCCL_DEFINE_LOAD(loadRelaxedSys, "ld.relaxed.sys", uint16_t, "u16", "h")
FLUXCCL_DEFINE_STORE(storeRelaxedSys, "st.relaxed.sys.global", uint16_t, "u16", "h")

FLUXCCL_DEVICE uint8_t loadRelaxedSys(const uint8_t* address) {
  uint16_t value;
  asm volatile("ld.relaxed.sys.global.u8 %0, [%1];"
               : "=h"(value)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
  return static_cast<uint8_t>(value);
}

FLUXCCL_DEVICE void storeRelaxedSys(uint8_t* address, uint8_t value) {
  asm volatile("st.relaxed.sys.global.u8 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(address)), "h"(static_cast<uint16_t>(value))
               : "memory");
}

// Both words at once, aligned to 16 bytes. PTX before CUDA 12.3 has no word of 16 bytes and does
// not guarantee a single access; the hardware makes one.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 3)
#define FLUXCCL_STORE_BOTH(order)                \
  "{\n\t"                                        \
  ".reg .b128 both;\n\t"                         \
  "mov.b128 both, {%1, %2};\n\t"                 \
  "st." order ".sys.global.b128 [%0], both;\n\t" \
  "}"
#else
#define FLUXCCL_STORE_BOTH(order) "st." order ".sys.global.v2.b64 [%0], {%1, %2};"
#endif

FLUXCCL_DEVICE void storeRelaxedSys(void* address, uint64_t first, uint64_t second) {
  asm volatile(FLUXCCL_STORE_BOTH("relaxed")
               :
               : "l"(__cvta_generic_to_global(address)), "l"(first), "l"(second)
               : "memory");
}

FLUXCCL_DEVICE void storeReleaseSys(void* address, uint64_t first, uint64_t second) {
  asm volatile(FLUXCCL_STORE_BOTH("release")
               :
               : "l"(__cvta_generic_to_global(address)), "l"(first), "l"(second)
               : "memory");
}

#undef FLUXCCL_STORE_BOTH

// 16 bytes as two or four words. Each word is accessed at once. The hardware moves all 16 bytes at
// once if the address is a multiple of 16, which PTX does not guarantee.
FLUXCCL_DEVICE void storeWordsRelaxedSys(void* address, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
               :
               : "l"(__cvta_generic_to_global(address)), "l"(first), "l"(second)
               : "memory");
}

FLUXCCL_DEVICE void loadWordsRelaxedSys(const void* address, uint64_t& first, uint64_t& second) {
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
}

FLUXCCL_DEVICE void storeRelaxedSys(uint4* address, uint4 value) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(address)), "r"(value.x), "r"(value.y), "r"(value.z),
                 "r"(value.w)
               : "memory");
}

FLUXCCL_DEVICE uint4 loadRelaxedSys(const uint4* address) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
  return value;
}

// A line of 128 bytes at once, by eight neighbouring lanes of a warp; the first lane is a multiple
// of 8. All of them call it together, each for its own 16 bytes, in the order of their addresses.
// So a flag in one of them shows that the others have arrived. PTX does not guarantee this: only a
// word of a store is accessed at once. NVLink keeps lines whole; PCIe may deliver their parts apart.
FLUXCCL_DEVICE void storeLineRelaxedSys(uint4* mine, uint4 value) { storeRelaxedSys(mine, value); }

FLUXCCL_DEVICE uint4 loadLineRelaxedSys(const uint4* mine) { return loadRelaxedSys(mine); }

// Orders all earlier loads and stores before all later ones, for all threads of this GPU.
FLUXCCL_DEVICE void fenceAcqRelGpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// As fenceAcqRelGpu(), for all threads of all GPUs and of the host. Waits for this thread's stores
// to peers.
FLUXCCL_DEVICE void fenceAcqRelSys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

}  // namespace fluxccl

#undef FLUXCCL_DEFINE_LOAD
#undef FLUXCCL_DEFINE_STORE
#undef FLUXCCL_DEFINE_FETCH
#undef FLUXCCL_DEFINE_ATOMICS

#endif  // FLUXCCL_CUDA
