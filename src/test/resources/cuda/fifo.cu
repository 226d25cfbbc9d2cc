// SPDX-License-Identifier: Apache-2.0
// The ring. One handle a kernel; the host drains.
#include <fluxccl/fluxccl.cuh>

#include "pattern.cuh"

using namespace fluxccl;

// Every thread pushes count triggers: first = thread number << 32 | i, second = i, i from 0. The
// triggers of one thread arrive in order. Adds the number of pushes that gave up to gaveUp[0].
extern "C" __global__ void fifoPush(FifoDeviceHandle fifo, int32_t count, uint32_t* gaveUp) {
  const uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t number = static_cast<uint64_t>(i);
    if (fifo.push(thread << 32 | number, number) < 0) {
      atomicAdd(gaveUp, 1u);
      return;
    }
  }
}

// Like the kernel above, without ordering earlier writes.
extern "C" __global__ void fifoRelaxedPush(FifoDeviceHandle fifo, int32_t count,
                                           uint32_t* gaveUp) {
  const uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t number = static_cast<uint64_t>(i);
    if (fifo.relaxedPush(thread << 32 | number, number) < 0) {
      atomicAdd(gaveUp, 1u);
      return;
    }
  }
}

// Each thread writes i to its own word of data, pinned memory of the host, and pushes (its number,
// i), i from 1 to count. The handler must find i there. Waits for the handler, so that no word is
// overwritten early.
extern "C" __global__ void fifoDataBeforeTrigger(FifoDeviceHandle fifo, uint64_t* data,
                                                 int32_t count, uint32_t* gaveUp) {
  const uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int32_t i = 1; i <= count; ++i) {
    data[thread] = static_cast<uint64_t>(i);
    if (!fifo.sync(fifo.push(thread, static_cast<uint64_t>(i)))) {
      atomicAdd(gaveUp, 1u);
      return;
    }
  }
}
