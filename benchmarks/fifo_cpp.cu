// SPDX-License-Identifier: Apache-2.0
// Measures a proxy written in C++ with the same ring, for comparison with `bin/fluxccl bench fifo`.
//
//   nvcc -O3 -std=c++17 -arch=native benchmarks/fifo_cpp.cu -o fifo_cpp && ./fifo_cpp
//
// Producer: one relaxed atomic for the position, a cached tail, `st.release.sys.v2` of the trigger.
// Consumer: acquires the second word, releases the tail after each batch of 64.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr uint64_t kSize = 512;
constexpr uint64_t kBatch = 64;
constexpr uint64_t kCommit = 1ull << 63;

struct Ring {
  uint64_t* slots;      // pinned: two words a trigger
  uint64_t* tail;       // pinned
  uint64_t* head;       // device
  uint64_t* tailCache;  // device
};

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

__device__ uint64_t loadTail(const uint64_t* tail) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(tail) : "memory");
  return value;
}

__device__ uint64_t push(const Ring& ring, uint64_t first, uint64_t second) {
  unsigned long long position;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], 1;"
               : "=l"(position)
               : "l"(ring.head)
               : "memory");
  if (position >= kSize + *static_cast<volatile uint64_t*>(ring.tailCache)) {
    uint64_t handled;
    do {
      handled = loadTail(ring.tail);
    } while (position >= kSize + handled);
    atomicMax(reinterpret_cast<unsigned long long*>(ring.tailCache), handled);
  }
  const uint64_t parity = (position / kSize) % 2 == 0 ? kCommit : 0;
  asm volatile("st.release.sys.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(ring.slots + 2 * (position % kSize)), "l"(first),
                 "l"((second & ~kCommit) | parity)
               : "memory");
  return position;
}

__global__ void pushMany(Ring ring, int count, bool sync) {
  for (int i = 0; i < count; ++i) {
    const uint64_t position = push(ring, i, i);
    while (sync && loadTail(ring.tail) <= position) {
    }
  }
}

void drain(const Ring& ring, uint64_t total) {
  uint64_t position = 0;
  while (position < total) {
    uint64_t taken = 0;
    while (taken < kBatch && position < total) {
      const uint64_t second =
          __atomic_load_n(&ring.slots[2 * (position % kSize) + 1], __ATOMIC_ACQUIRE);
      if ((second >= kCommit) != ((position / kSize) % 2 == 0)) {
        break;
      }
      ++position;
      ++taken;
    }
    if (taken > 0) {
      __atomic_store_n(ring.tail, position, __ATOMIC_RELEASE);
    }
  }
}

// Returns the microseconds of the whole run.
double run(const Ring& ring, int blocks, int threads, int count, bool sync) {
  std::memset(ring.slots, 0, 16 * kSize);
  *ring.tail = 0;
  check(cudaMemset(ring.head, 0, sizeof(uint64_t)));
  check(cudaMemset(ring.tailCache, 0, sizeof(uint64_t)));
  check(cudaDeviceSynchronize());
  const uint64_t total = static_cast<uint64_t>(blocks) * threads * count;
  std::thread proxy(drain, ring, total);
  const auto begin = std::chrono::steady_clock::now();
  pushMany<<<blocks, threads>>>(ring, count, sync);
  check(cudaDeviceSynchronize());
  const auto end = std::chrono::steady_clock::now();
  proxy.join();
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

}  // namespace

int main() {
  Ring ring{};
  check(cudaHostAlloc(reinterpret_cast<void**>(&ring.slots), 16 * kSize, cudaHostAllocMapped));
  check(cudaHostAlloc(reinterpret_cast<void**>(&ring.tail), 128, cudaHostAllocMapped));
  check(cudaMalloc(reinterpret_cast<void**>(&ring.head), 128));
  check(cudaMalloc(reinterpret_cast<void**>(&ring.tailCache), 128));
  const int shapes[][3] = {{1, 1, 200000}, {32, 1, 50000}, {4, 32, 50000}, {1, 128, 50000}};
  run(ring, 1, 1, 20000, false);
  for (const auto& shape : shapes) {
    const double us = run(ring, shape[0], shape[1], shape[2], false);
    std::printf("C++: push from %2d blocks x %3d threads   %8.3f M/s\n", shape[0], shape[1],
                static_cast<double>(shape[0]) * shape[1] * shape[2] / us);
  }
  std::printf("C++: push and sync, mean                 %8.3f us\n",
              run(ring, 1, 1, 50000, true) / 50000);
  return 0;
}
