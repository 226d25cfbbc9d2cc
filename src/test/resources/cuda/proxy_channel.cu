// SPDX-License-Identifier: Apache-2.0
// Channels through the host's proxy. Memory and arguments as in sm_channel.cu.
#include <fluxccl/fluxccl.cuh>

#include "pattern.cuh"

using namespace fluxccl;

// Rank 0 begins: put and signal in one trigger, the peer waits and answers. memory is the channel's
// local memory. With flush, each rank also waits until its data has arrived.
extern "C" __global__ void proxyPingPong(ProxyChannel channel, uint8_t* memory, int32_t rank,
                                         int32_t iterations, int64_t bytes, int64_t receiveOffset,
                                         int32_t flush, int32_t verify, uint32_t* wrong,
                                         uint32_t* done) {
  const uint32_t me = static_cast<uint32_t>(rank);
  for (int32_t i = 0; i < 2 * iterations; ++i) {
    const uint32_t round = static_cast<uint32_t>(i / 2);
    bool alive = true;
    if (i % 2 == rank) {
      if (verify != 0) {
        // The answer has arrived, so the data sent before has been read.
        pattern::fill(memory, bytes, me, round, threadIdx.x, blockDim.x);
        __syncthreads();
      }
      if (threadIdx.x == 0) {
        alive = flush != 0 ? channel.putWithSignalAndFlush(receiveOffset, 0, bytes)
                           : channel.putWithSignal(receiveOffset, 0, bytes);
      }
    } else if (threadIdx.x == 0) {
      alive = channel.wait();
    }
    if (__syncthreads_and(alive) == 0) {
      return;
    }
    if (i % 2 != rank && verify != 0) {
      const uint32_t count =
          pattern::wrong(memory + receiveOffset, bytes, 1 - me, round, threadIdx.x, blockDim.x);
      if (count != 0) {
        atomicAdd(wrong, count);
      }
      __syncthreads();
    }
  }
  if (threadIdx.x == 0) {
    *done = static_cast<uint32_t>(iterations);
  }
}

// One put of bytes from offset 0 to offset 0, and a flush. done[0] becomes 1, or 2 if it gave up.
extern "C" __global__ void proxyPut(ProxyChannel channel, int64_t bytes, uint32_t* done) {
  const bool arrived = channel.put(0, 0, bytes) && channel.flush();
  *done = arrived ? 1 : 2;
}

// Four blocks of one thread, each with a channel, put, signal and flush iterations times; the peer
// takes all signals. done[block] becomes iterations.
extern "C" __global__ void proxyFourFlushes(ProxyChannel channel0, ProxyChannel channel1,
                                            ProxyChannel channel2, ProxyChannel channel3,
                                            int32_t iterations, int64_t bytes, uint32_t* done) {
  const ProxyChannel channel = blockIdx.x == 0   ? channel0
                               : blockIdx.x == 1 ? channel1
                               : blockIdx.x == 2 ? channel2
                                                 : channel3;
  const uint64_t offset = blockIdx.x * static_cast<uint64_t>(bytes);
  for (int32_t i = 0; i < iterations; ++i) {
    if (!channel.putWithSignalAndFlush(offset, offset, bytes)) {
      return;
    }
    if (!channel.wait()) {
      return;
    }
  }
  done[blockIdx.x] = static_cast<uint32_t>(iterations);
}
