// SPDX-License-Identifier: Apache-2.0
// What the kernels for GPUs of compute capability 9.0 share; compiled behind
// llama.cu.

#include <fluxccl/ptx.cuh>

namespace {

// Packs two numbers as bfloat16.
__device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Transposes 8 x 8 bfloat16, of which a lane has two neighbours: lane 4 i + j those of row i from column 2 j on.
__device__ __forceinline__ unsigned transposed(unsigned two) {
  unsigned result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(two));
  return result;
}

// Waits for the cluster's threads, and makes their stores to shared memory visible to all of them.
__device__ __forceinline__ void syncCluster() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// Loads from the shared memory of a block of the cluster what this block has at an address.
template <class T>
__device__ __forceinline__ T loadOf(int block, const T* shared) {
  fluxccl::uint32_t at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(fluxccl::sharedAddress(shared)), "r"(block));
  T value;
  if constexpr (sizeof(T) == sizeof(float)) {
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
  } else {
    asm volatile("ld.shared::cluster.s64 %0, [%1];" : "=l"(value) : "r"(at) : "memory");
  }
  return value;
}

}  // namespace
