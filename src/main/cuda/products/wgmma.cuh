// SPDX-License-Identifier: Apache-2.0
// The tensor cores' instructions of compute capability 9.0 for products of bfloat16: compiled for sm_90a only.
#pragma once

#include <fluxccl/ptx.cuh>

#if defined(FLUXCCL_CUDA)

namespace fluxccl {

// Packs two numbers as bfloat16.
FLUXCCL_DEVICE uint32_t packBfloat16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Transposes 8 x 8 bfloat16, of which a lane has two neighbours: lane 4 i + j those of row i from column 2 j on.
FLUXCCL_DEVICE uint32_t transposeBfloat16(uint32_t two) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(two));
  return result;
}

constexpr int kSwizzledBytes = 1024;  // 8 rows of 128 bytes: the unit of wgmma's swizzle

// Describes a tile of rows of 128 bytes with their 16-byte chunks swizzled.
FLUXCCL_DEVICE uint64_t wgmmaDescriptor(const void* tile) {
  return uint64_t{(sharedAddress(tile) & 0x3ffff) >> 4} | 1ull << 16 |
         uint64_t{kSwizzledBytes >> 4} << 32 | 1ull << 62;
}

// Registers 0 to 127 of wgmma's sums, as text and as operands.
#define FLUXCCL_TEXT_4 "%0, %1, %2, %3"
#define FLUXCCL_TEXT_8 FLUXCCL_TEXT_4 ", %4, %5, %6, %7"
#define FLUXCCL_TEXT_16 FLUXCCL_TEXT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FLUXCCL_TEXT_32 FLUXCCL_TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FLUXCCL_TEXT_64                                                                                                 \
  FLUXCCL_TEXT_32                                                                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FLUXCCL_TEXT_128                                                                                                  \
  FLUXCCL_TEXT_64                                                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, "   \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "     \
  "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, " \
  "%123, %124, %125, %126, %127"
#define FLUXCCL_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define FLUXCCL_SUMS_8(i) FLUXCCL_SUMS_4(i), FLUXCCL_SUMS_4(i + 4)
#define FLUXCCL_SUMS_16(i) FLUXCCL_SUMS_8(i), FLUXCCL_SUMS_8(i + 8)
#define FLUXCCL_SUMS_32(i) FLUXCCL_SUMS_16(i), FLUXCCL_SUMS_16(i + 16)
#define FLUXCCL_SUMS_64(i) FLUXCCL_SUMS_32(i), FLUXCCL_SUMS_32(i + 32)
#define FLUXCCL_SUMS_128(i) FLUXCCL_SUMS_64(i), FLUXCCL_SUMS_64(i + 64)

// Adds 64 outputs x 16 inputs of weights times rows, by their descriptors; count is half the number of rows.
#define FLUXCCL_WGMMA(rows, count, a, b)                                                                           \
  FLUXCCL_DEVICE void wgmma(float (&sums)[count], uint64_t weights, uint64_t in) { \
    asm volatile(                                                                                          \
        "{\n\t.reg .pred add;\n\tsetp.eq.u32 add, 0, 0;\n\t"                                               \
        "wgmma.mma_async.sync.aligned.m64n" #rows "k16.f32.bf16.bf16 {" FLUXCCL_TEXT_##count "}, %" #a ", %" #b    \
        ", add, 1, 1, 0, 0;\n\t}"                                                                          \
        : FLUXCCL_SUMS_##count(0)                                                                                  \
        : "l"(weights), "l"(in));                                                                          \
  }
FLUXCCL_WGMMA(8, 4, 4, 5)
FLUXCCL_WGMMA(16, 8, 8, 9)
FLUXCCL_WGMMA(32, 16, 16, 17)
FLUXCCL_WGMMA(64, 32, 32, 33)
FLUXCCL_WGMMA(128, 64, 64, 65)
FLUXCCL_WGMMA(256, 128, 128, 129)

#undef FLUXCCL_WGMMA

// Keeps sums in their registers, over what is asynchronous.
template <int kCount>
FLUXCCL_DEVICE void keepSums(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    asm volatile("" : "+f"(sums[i])::"memory");
  }
}

FLUXCCL_DEVICE void wgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

FLUXCCL_DEVICE void wgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until all but the last kGroups groups have been added.
template <int kGroups>
FLUXCCL_DEVICE void wgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

}  // namespace fluxccl

#endif  // FLUXCCL_CUDA
