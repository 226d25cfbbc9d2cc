// SPDX-License-Identifier: Apache-2.0
// Channels with any offset and size, both directions at once, and many threads on one channel. One
// block, unless it says otherwise; wrong[0] counts wrong values.
#include <fluxccl/fluxccl.cuh>

#include "pattern.cuh"

using namespace fluxccl;

namespace {

__device__ void require(bool holds, uint32_t* wrong) {
  if (!holds) {
    atomicAdd(wrong, 1u);
  }
}

template <int kAlignment, bool kRemainder>
__device__ void move(const SmChannel& channel, bool get, uint64_t targetOffset,
                     uint64_t sourceOffset, uint64_t size) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t threads = gridDim.x * blockDim.x;
  if (get) {
    channel.get<kAlignment, kRemainder>(targetOffset, sourceOffset, size, thread, threads);
  } else {
    channel.put<kAlignment, kRemainder>(targetOffset, sourceOffset, size, thread, threads);
  }
}

}  // namespace

// One put, or get, of one range; any number of blocks. With remainder, also the bytes after the
// last whole unit of alignment bytes.
extern "C" __global__ void smMove(SmChannel channel, int32_t get, int32_t alignment,
                                  int32_t remainder, int64_t targetOffset, int64_t sourceOffset,
                                  int64_t size) {
  if (alignment == 4) {
    remainder != 0 ? move<4, true>(channel, get != 0, targetOffset, sourceOffset, size)
                   : move<4, false>(channel, get != 0, targetOffset, sourceOffset, size);
  } else if (alignment == 8) {
    remainder != 0 ? move<8, true>(channel, get != 0, targetOffset, sourceOffset, size)
                   : move<8, false>(channel, get != 0, targetOffset, sourceOffset, size);
  } else {
    remainder != 0 ? move<16, true>(channel, get != 0, targetOffset, sourceOffset, size)
                   : move<16, false>(channel, get != 0, targetOffset, sourceOffset, size);
  }
}

// Both ranks put and signal at once, round after round: the data has arrived when its signal has.
// The memory of either rank is its own source, sent from 0, and the other's target, received at
// receiveOffset.
extern "C" __global__ void smBothWays(SmChannel channel, int32_t rank, int32_t rounds,
                                      int64_t bytes, int64_t receiveOffset, uint32_t* wrong) {
  const uint32_t me = static_cast<uint32_t>(rank);
  for (int32_t i = 0; i < rounds; ++i) {
    const uint32_t round = static_cast<uint32_t>(i);
    pattern::fill(channel.source, bytes, me, round, threadIdx.x, blockDim.x);
    __syncthreads();
    channel.put(receiveOffset, 0, bytes, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) {
      channel.signal();
      require(channel.wait(), wrong);
    }
    __syncthreads();
    const uint32_t count = pattern::wrong(static_cast<uint8_t*>(channel.source) + receiveOffset,
                                          bytes, 1 - me, round, threadIdx.x, blockDim.x);
    if (count != 0) {
      atomicAdd(wrong, count);
    }
    __syncthreads();
    // Both ranks have checked before either puts again.
    if (threadIdx.x == 0) {
      channel.signal();
      require(channel.wait(), wrong);
    }
    __syncthreads();
  }
}

// Like the kernel above, through the proxy, with put and signal as two triggers.
extern "C" __global__ void proxyBothWays(ProxyChannel channel, uint8_t* memory, int32_t rank,
                                         int32_t rounds, int64_t bytes, int64_t receiveOffset,
                                         uint32_t* wrong) {
  const uint32_t me = static_cast<uint32_t>(rank);
  for (int32_t i = 0; i < rounds; ++i) {
    const uint32_t round = static_cast<uint32_t>(i);
    pattern::fill(memory, bytes, me, round, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) {
      require(channel.put(receiveOffset, 0, bytes), wrong);
      require(channel.signal(), wrong);
      require(channel.wait(), wrong);
    }
    __syncthreads();
    const uint32_t count = pattern::wrong(memory + receiveOffset, bytes, 1 - me, round,
                                          threadIdx.x, blockDim.x);
    if (count != 0) {
      atomicAdd(wrong, count);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      // Both ranks have checked, and the sent data may be overwritten.
      require(channel.signal(), wrong);
      require(channel.wait(), wrong);
      require(channel.flush(), wrong);
    }
    __syncthreads();
  }
}

// Every thread puts and flushes its own piece, all on one channel.
extern "C" __global__ void proxyFlushes(ProxyChannel channel, uint8_t* memory, int32_t rank,
                                        int32_t rounds, int64_t bytes, int64_t receiveOffset,
                                        uint32_t* wrong) {
  const uint64_t offset = threadIdx.x * static_cast<uint64_t>(bytes);
  for (int32_t i = 0; i < rounds; ++i) {
    pattern::fill(memory + offset, bytes, static_cast<uint32_t>(rank), static_cast<uint32_t>(i), 0,
                  1);
    require(channel.put(receiveOffset + offset, offset, bytes), wrong);
    require(channel.flush(), wrong);
  }
}

// Checks that pieces have the values of the peer's last round of proxyFlushes, with one thread for
// each piece.
extern "C" __global__ void checkPieces(const uint8_t* memory, int32_t writer, int32_t round,
                                       int64_t bytes, uint32_t* wrong) {
  const uint32_t count =
      pattern::wrong(memory + threadIdx.x * static_cast<uint64_t>(bytes), bytes,
                     static_cast<uint32_t>(writer), static_cast<uint32_t>(round), 0, 1);
  if (count != 0) {
    atomicAdd(wrong, count);
  }
}

// One put of one range and a flush by one thread. done[0] becomes 1, or 2 if it gave up.
extern "C" __global__ void proxyPutRange(ProxyChannel channel, int64_t targetOffset,
                                         int64_t sourceOffset, int64_t size, uint32_t* done) {
  *done = channel.put(targetOffset, sourceOffset, size) && channel.flush() ? 1 : 2;
}

// Every thread pushes count triggers like fifoPush of fifo.cu, and waits for each. By then the
// handler has stored the index plus one in this thread's line of 64 bytes of handled, in pinned
// memory.
extern "C" __global__ void fifoPushAndLook(FifoDeviceHandle fifo, int32_t count,
                                           const uint64_t* handled, uint32_t* wrong) {
  const uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t number = static_cast<uint64_t>(i);
    require(fifo.sync(fifo.push(thread << 32 | number, number)), wrong);
    require(loadRelaxedSys(handled + thread * 8) == number + 1, wrong);
  }
}

// Like the kernel above, but with one wait for all triggers of the block. After it, the handler has
// stored count in every thread's line.
extern "C" __global__ void fifoPushAllAndLook(FifoDeviceHandle fifo, int32_t count,
                                              const uint64_t* handled, uint32_t* wrong) {
  const uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t number = static_cast<uint64_t>(i);
    require(fifo.push(ProxyTrigger{thread << 32 | number, number}) >= 0, wrong);
  }
  __syncthreads();
  require(fifo.sync(), wrong);
  const uint64_t neighbour = blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x;
  require(loadRelaxedSys(handled + neighbour * 8) == static_cast<uint64_t>(count), wrong);
}
