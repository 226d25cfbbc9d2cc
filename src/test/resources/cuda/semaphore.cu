// SPDX-License-Identifier: Apache-2.0
// Signals between two kernels, and from the host to a kernel. One thread each.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

namespace {

template <bool kRelaxed>
__device__ void pingPong(const SmDevice2DeviceSemaphore& semaphore, int32_t rank,
                         int32_t iterations, uint32_t* done) {
  for (int32_t i = 0; i < iterations; ++i) {
    if (rank != 0 && !semaphore.wait()) {
      return;
    }
    if (kRelaxed) {
      semaphore.relaxedSignal();
    } else {
      semaphore.signal();
    }
    if (rank == 0 && !semaphore.wait()) {
      return;
    }
  }
  *done = static_cast<uint32_t>(iterations);
}

}  // namespace

// Rank 0 signals first, rank 1 answers, iterations times. done[0] becomes iterations, or stays 0 after
// an abort.
extern "C" __global__ void semaphorePingPong(SmDevice2DeviceSemaphore semaphore, int32_t rank,
                                             int32_t iterations, uint32_t* done) {
  pingPong<false>(semaphore, rank, iterations, done);
}

// Like the kernel above, with relaxed signals.
extern "C" __global__ void semaphoreRelaxedPingPong(SmDevice2DeviceSemaphore semaphore,
                                                    int32_t rank, int32_t iterations,
                                                    uint32_t* done) {
  pingPong<true>(semaphore, rank, iterations, done);
}

// Takes count signals of the peer's host; done[0] counts them as they arrive.
extern "C" __global__ void semaphoreTake(Host2DeviceSemaphore semaphore, int32_t count,
                                         uint32_t* done) {
  for (int32_t i = 0; i < count && semaphore.wait(); ++i) {
    storeReleaseSys(done, static_cast<uint32_t>(i + 1));
  }
}

// polls[0] becomes 1 if poll took a signal, otherwise 2.
extern "C" __global__ void semaphorePoll(Host2DeviceSemaphore semaphore, uint32_t* polls) {
  *polls = semaphore.poll() ? 1 : 2;
}
