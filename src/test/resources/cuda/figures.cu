// SPDX-License-Identifier: Apache-2.0
// The kernels that fluxccl bench times. They check no results; the tests do.
#include <fluxccl/fluxccl.cuh>

#include "pattern.cuh"

using namespace fluxccl;

// To time a launch.
extern "C" __global__ void nothing() {}

// One thread pushes and waits until the trigger is handled, count times, each time after a pause in nanoseconds. Stores
// the clock cycles of each to cycles, and nanoseconds and cycles of all to total.
extern "C" __global__ void pushSyncCycles(FifoDeviceHandle fifo, int32_t count, int64_t pause,
                                          uint32_t* cycles, uint64_t* total) {
  const uint64_t startTime = pattern::nanos();
  const int64_t startClock = clock64();
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t end = pattern::nanos() + static_cast<uint64_t>(pause);
    while (pause != 0 && pattern::nanos() < end) {
      betweenPolls();
    }
    const int64_t before = clock64();
    fifo.sync(fifo.push(static_cast<uint64_t>(i), 0));
    cycles[i] = static_cast<uint32_t>(clock64() - before);
  }
  total[0] = pattern::nanos() - startTime;
  total[1] = static_cast<uint64_t>(clock64() - startClock);
}

// Puts the whole memory repeatedly, then flushes; with one thread.
extern "C" __global__ void proxyPuts(ProxyChannel channel, int64_t bytes, int32_t times) {
  for (int32_t i = 0; i < times; ++i) {
    channel.put(0, 0, bytes);
  }
  channel.flush();
}
