// SPDX-License-Identifier: Apache-2.0
// Kernels that wait for events that never occur. Each writes to result[thread of the grid] 1 if the
// event occurred, 2 if the wait gave up.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

namespace {

__device__ void report(uint32_t* result, bool there) {
  result[blockIdx.x * blockDim.x + threadIdx.x] = there ? 1 : 2;
}

}  // namespace

extern "C" __global__ void abortSignal(SmDevice2DeviceSemaphore semaphore, uint32_t* result) {
  report(result, semaphore.wait());
}

extern "C" __global__ void abortHostSignal(Host2DeviceSemaphore semaphore, uint32_t* result) {
  report(result, semaphore.wait());
}

// Pushes until the ring is full; no thread drains it.
extern "C" __global__ void abortPush(FifoDeviceHandle fifo, uint32_t* result) {
  for (uint32_t i = 0; i <= fifo.size; ++i) {
    if (fifo.push(1, 1) < 0) {
      report(result, false);
      return;
    }
  }
  report(result, true);
}

extern "C" __global__ void abortSync(FifoDeviceHandle fifo, uint32_t* result) {
  report(result, fifo.sync(fifo.push(1, 1)));
}

extern "C" __global__ void abortFlush(ProxyChannel channel, uint32_t* result) {
  report(result, channel.flush());
}

// Any number of threads.
extern "C" __global__ void abortPacketsLl8(SmChannel channel, int64_t bytes, int32_t flag,
                                           uint32_t* result) {
  report(result, channel.getPackets<PacketType::LL8>(0, 0, bytes, threadIdx.x, blockDim.x,
                                                     static_cast<uint32_t>(flag)));
}

extern "C" __global__ void abortPacketsLl16(SmChannel channel, int64_t bytes, int32_t flag,
                                            uint32_t* result) {
  report(result, channel.getPackets<PacketType::LL16>(0, 0, bytes, threadIdx.x, blockDim.x,
                                                      static_cast<uint32_t>(flag)));
}

// Waits for one block more than the grid has.
extern "C" __global__ void abortGrid(DeviceSyncer* syncer, AbortFlag* abort, uint32_t* result) {
  report(result, syncer->sync(blockIdx.x, gridDim.x + 1, abort));
}
