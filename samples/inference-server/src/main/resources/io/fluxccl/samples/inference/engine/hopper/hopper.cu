// SPDX-License-Identifier: Apache-2.0
// Shared functions of the kernels for GPUs of compute capability 9.0; compiled after llama.cu.

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

// Tells the cluster what this thread has done; awaitCluster() waits until all threads have told so.
__device__ __forceinline__ void arriveInCluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void awaitCluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Waits for the cluster's threads, and makes their stores to shared memory visible to all of them.
__device__ __forceinline__ void syncCluster() {
  arriveInCluster();
  awaitCluster();
}

// Loads from the shared memory of a block of the cluster what this block has at an address.
__device__ __forceinline__ long long loadOf(int block, const long long* shared) {
  fluxccl::uint32_t at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(fluxccl::sharedAddress(shared)), "r"(block));
  long long value;
  asm volatile("ld.shared::cluster.s64 %0, [%1];" : "=l"(value) : "r"(at) : "memory");
  return value;
}

// Stores 16 bytes to the shared memory of a block of the cluster, whose barrier counts them; both addresses are those of
// this block's own.
__device__ __forceinline__ void storeTo(int block, void* shared, float4 value, fluxccl::TransactionBarrier* barrier) {
  asm volatile(
      "{\n\t"
      ".reg .b32 to, counter;\n\t"
      "mapa.shared::cluster.u32 to, %0, %2;\n\t"
      "mapa.shared::cluster.u32 counter, %1, %2;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3, %4, %5, %6}, [counter];\n\t"
      "}" ::"r"(fluxccl::sharedAddress(shared)),
      "r"(fluxccl::sharedAddress(barrier)), "r"(block), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
}

}  // namespace
