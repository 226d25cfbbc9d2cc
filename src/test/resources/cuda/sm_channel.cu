// SPDX-License-Identifier: Apache-2.0
// Channels of mapped memory between two ranks: correctness, latency, bandwidth.
//
// The memory of either rank is both its own channel's source and the other's target: data to send
// lies at 0, received data at receiveOffset, a multiple of 16. Ping-pongs run in one block, unless
// they say otherwise; rank is 0 or 1, and 0 begins. With verify, every word is checked in every
// iteration and wrong[0] counts those that differ from the sent ones. done[0] becomes iterations,
// or stays 0 after an abort.
#include <fluxccl/fluxccl.cuh>

#include "pattern.cuh"

using namespace fluxccl;

namespace {

__device__ uint8_t* sourceAt(const SmChannel& channel, uint64_t offset) {
  return static_cast<uint8_t*>(channel.source) + offset;
}

// Thread 0 waits for the signal, and the others wait for thread 0.
template <class Channel>
__device__ bool blockWait(const Channel& channel) {
  bool there = true;
  if (threadIdx.x == 0) {
    there = channel.wait();
  }
  return __syncthreads_and(there) != 0;
}

template <int kAlignment>
__device__ void putPingPong(const SmChannel& channel, int32_t rank, int32_t iterations,
                            uint64_t bytes, uint64_t receiveOffset, int32_t verify,
                            uint32_t* wrong, uint32_t* done) {
  const uint32_t me = static_cast<uint32_t>(rank);
  for (int32_t i = 0; i < 2 * iterations; ++i) {
    const uint32_t round = static_cast<uint32_t>(i / 2);
    if (i % 2 == rank) {
      if (verify != 0) {
        pattern::fill(channel.source, bytes, me, round, threadIdx.x, blockDim.x);
        __syncthreads();
      }
      channel.put<kAlignment>(receiveOffset, 0, bytes, threadIdx.x, blockDim.x);
      __syncthreads();
      if (threadIdx.x == 0) {
        channel.signal();
      }
    } else {
      if (!blockWait(channel)) {
        return;
      }
      if (verify != 0) {
        const uint32_t count = pattern::wrong(sourceAt(channel, receiveOffset), bytes, 1 - me,
                                              round, threadIdx.x, blockDim.x);
        if (count != 0) {
          atomicAdd(wrong, count);
        }
        // All threads have checked the data before the answer lets the peer overwrite it.
        __syncthreads();
      }
    }
  }
  if (threadIdx.x == 0) {
    *done = static_cast<uint32_t>(iterations);
  }
}

template <PacketType kType>
__device__ void packetPingPong(const SmChannel& channel, int32_t rank, int32_t iterations,
                               uint64_t bytes, uint64_t receiveOffset, int32_t firstFlag,
                               int32_t verify, uint32_t* wrong, uint32_t* done) {
  const uint32_t thread = threadIdx.x;
  const uint32_t threads = blockDim.x;
  for (int32_t i = 0; i < iterations; ++i) {
    const uint32_t flag = static_cast<uint32_t>(firstFlag + i);
    const uint32_t round = static_cast<uint32_t>(i);
    if (rank == 0) {
      if (verify != 0) {
        pattern::fill(channel.source, bytes, 0, round, thread, threads);
        __syncthreads();
      }
      channel.putPackets<kType>(0, 0, bytes, thread, threads, flag);
      if (!channel.getPackets<kType>(0, receiveOffset, bytes, thread, threads, flag)) {
        return;
      }
      if (verify != 0) {
        __syncthreads();
        const uint32_t count = pattern::wrong(sourceAt(channel, receiveOffset), bytes, 0, round,
                                              thread, threads);
        if (count != 0) {
          atomicAdd(wrong, count);
        }
        __syncthreads();
      }
    } else {
      // Each thread answers with the packets that it has taken itself, so none overtakes another.
      if (!channel.getPackets<kType>(0, receiveOffset, bytes, thread, threads, flag)) {
        return;
      }
      channel.putPackets<kType>(0, receiveOffset, bytes, thread, threads, flag);
    }
  }
  // Only if every thread completed; after an abort some threads have left.
  atomicAdd(done, 1u);
}

}  // namespace

// put and signal by units of 16, 8 and 4 bytes. bytes is a multiple of 4.
extern "C" __global__ void smPutPingPong16(SmChannel channel, int32_t rank, int32_t iterations,
                                           int64_t bytes, int64_t receiveOffset, int32_t verify,
                                           uint32_t* wrong, uint32_t* done) {
  putPingPong<16>(channel, rank, iterations, bytes, receiveOffset, verify, wrong, done);
}

extern "C" __global__ void smPutPingPong8(SmChannel channel, int32_t rank, int32_t iterations,
                                          int64_t bytes, int64_t receiveOffset, int32_t verify,
                                          uint32_t* wrong, uint32_t* done) {
  putPingPong<8>(channel, rank, iterations, bytes, receiveOffset, verify, wrong, done);
}

extern "C" __global__ void smPutPingPong4(SmChannel channel, int32_t rank, int32_t iterations,
                                          int64_t bytes, int64_t receiveOffset, int32_t verify,
                                          uint32_t* wrong, uint32_t* done) {
  putPingPong<4>(channel, rank, iterations, bytes, receiveOffset, verify, wrong, done);
}

// Each rank fills its memory, signals the peer, gets the peer's memory and checks it.
extern "C" __global__ void smGetPingPong(SmChannel channel, int32_t rank, int32_t iterations,
                                         int64_t bytes, int64_t receiveOffset, uint32_t* wrong,
                                         uint32_t* done) {
  const uint32_t me = static_cast<uint32_t>(rank);
  for (int32_t i = 0; i < iterations; ++i) {
    const uint32_t round = static_cast<uint32_t>(i);
    pattern::fill(channel.source, bytes, me, round, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) {
      channel.signal();
    }
    if (!blockWait(channel)) {
      return;
    }
    channel.get(0, receiveOffset, bytes, threadIdx.x, blockDim.x);
    __syncthreads();
    const uint32_t count = pattern::wrong(sourceAt(channel, receiveOffset), bytes, 1 - me, round,
                                          threadIdx.x, blockDim.x);
    if (count != 0) {
      atomicAdd(wrong, count);
    }
    __syncthreads();
    // Both ranks have read before either fills its memory again.
    if (threadIdx.x == 0) {
      channel.signal();
    }
    if (!blockWait(channel)) {
      return;
    }
  }
  if (threadIdx.x == 0) {
    *done = static_cast<uint32_t>(iterations);
  }
}

// One thread writes words 0 to count - 1 of the peer's memory, signals, waits, and reads them back from
// there: 8 bytes each, then 4.
extern "C" __global__ void smReadWrite(SmChannel channel, int32_t rank, int32_t count,
                                       uint32_t* wrong, uint32_t* done) {
  for (int32_t i = 0; i < count; ++i) {
    channel.write<uint64_t>(i, (static_cast<uint64_t>(rank + 1) << 40) + i);
  }
  channel.signal();
  if (!channel.wait()) {
    return;
  }
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t theirs = loadRelaxedGpu(static_cast<uint64_t*>(channel.source) + i);
    *wrong += channel.read<uint64_t>(i) != (static_cast<uint64_t>(rank + 1) << 40) + i;
    *wrong += theirs != (static_cast<uint64_t>(2 - rank) << 40) + i;
  }
  channel.signal();
  if (!channel.wait()) {
    return;
  }
  for (int32_t i = 0; i < 2 * count; ++i) {
    channel.write<float>(i, static_cast<float>(100 * rank + i));
    *wrong += channel.read<float>(i) != static_cast<float>(100 * rank + i);
  }
  *done = static_cast<uint32_t>(count);
}

// Rank 1 answers with the packets that it received. The channel's target is the peer's packet
// buffer, of twice bytes. Flags run from firstFlag on; the buffers must not hold them. done[0]
// becomes the number of threads.
extern "C" __global__ void smPacketPingPongLl8(SmChannel channel, int32_t rank, int32_t iterations,
                                               int64_t bytes, int64_t receiveOffset,
                                               int32_t firstFlag, int32_t verify, uint32_t* wrong,
                                               uint32_t* done) {
  packetPingPong<PacketType::LL8>(channel, rank, iterations, bytes, receiveOffset, firstFlag,
                                  verify, wrong, done);
}

extern "C" __global__ void smPacketPingPongLl16(SmChannel channel, int32_t rank,
                                                int32_t iterations, int64_t bytes,
                                                int64_t receiveOffset, int32_t firstFlag,
                                                int32_t verify, uint32_t* wrong, uint32_t* done) {
  packetPingPong<PacketType::LL16>(channel, rank, iterations, bytes, receiveOffset, firstFlag,
                                   verify, wrong, done);
}

// Data of many blocks arrives before their one signal. A whole grid puts and passes a barrier, and thread 0 of block 0
// signals. A whole grid waits for the signal and checks the data. syncer: zeroed, of this rank's memory. Both ranks
// launch equally many blocks, all resident.
extern "C" __global__ void smGridPutPingPong(SmChannel channel, DeviceSyncer* syncer,
                                             AbortFlag* abort, int32_t rank, int32_t iterations,
                                             int64_t bytes, int64_t receiveOffset, uint32_t* wrong,
                                             uint32_t* done) {
  const uint32_t me = static_cast<uint32_t>(rank);
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t threads = gridDim.x * blockDim.x;
  for (int32_t i = 0; i < 2 * iterations; ++i) {
    const uint32_t round = static_cast<uint32_t>(i / 2);
    if (i % 2 == rank) {
      pattern::fill(channel.source, bytes, me, round, thread, threads);
      if (!syncer->sync(abort)) {
        return;
      }
      channel.put(receiveOffset, 0, bytes, thread, threads);
      if (!syncer->sync(abort)) {
        return;
      }
      if (thread == 0) {
        channel.signal();
      }
    } else {
      // After an abort the barrier gives up too, in every block.
      if (thread == 0) {
        channel.wait();
      }
      if (!syncer->sync(abort)) {
        return;
      }
      const uint32_t count = pattern::wrong(sourceAt(channel, receiveOffset), bytes, 1 - me, round,
                                            thread, threads);
      if (count != 0) {
        atomicAdd(wrong, count);
      }
      if (!syncer->sync(abort)) {
        return;
      }
    }
  }
  if (thread == 0) {
    *done = static_cast<uint32_t>(iterations);
  }
}

// All threads of the grid put bytes from the start of the source to the start of the target.
extern "C" __global__ void smPut(SmChannel channel, int64_t bytes) {
  channel.put(0, 0, bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

// Like smPut, by get, from the start of the target to the start of the source.
extern "C" __global__ void smGet(SmChannel channel, int64_t bytes) {
  channel.get(0, 0, bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

// The reference for smPut: one load and one store of 16 bytes at a time, by neighbouring threads at
// neighbouring addresses.
extern "C" __global__ void plainStore(SmChannel channel, int64_t bytes) {
  uint4* to = static_cast<uint4*>(channel.target);
  const uint4* from = static_cast<const uint4*>(channel.source);
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes / 16;
       i += gridDim.x * blockDim.x) {
    to[i] = from[i];
  }
}
