// SPDX-License-Identifier: Apache-2.0
// Kernels that call the device API with the names and argument lists of MSCCL++. All of their
// results are checked.
//
// memory: what this rank computed or received, as each kernel says. Arrays of channels are by rank;
// the element of this rank itself is unused. Each pair of ranks has its own channel, with the same
// memory at both ends.
#include <fluxccl/fluxccl.cuh>

namespace mscclpp = fluxccl;

template <class T>
using DeviceHandle = mscclpp::DeviceHandle<T>;

// One thread asks the proxy for a put, a signal and a flush, each by a trigger of its own, and waits
// for those of the peer.
extern "C" __global__ void mscclppPutSignalFlush(
    mscclpp::SimpleProxyChannelDeviceHandle* proxyChannels, int peer, int bytes) {
  mscclpp::SimpleProxyChannelDeviceHandle channel = proxyChannels[peer];
  channel.put(/*dstOffset=*/bytes, /*srcOffset=*/0, /*size=*/bytes);
  channel.signal();
  channel.flush();
  channel.wait();
  channel.fifo.sync();
}

// A block puts by its own threads; one of them signals, and waits.
extern "C" __global__ void mscclppPutByThreads(mscclpp::SmChannelDeviceHandle* smChannels, int peer,
                                               int bytes) {
  smChannels[peer].put(/*dstOffset=*/bytes, /*srcOffset=*/0, /*size=*/bytes, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    smChannels[peer].signal();
    smChannels[peer].wait();
  }
  __syncthreads();
}

// A block gets the peer's data, which is there after the first signal, and was read before the second one.
extern "C" __global__ void mscclppGet(mscclpp::MemoryChannelDeviceHandle* smChannels, int peer, int bytes) {
  mscclpp::MemoryChannelDeviceHandle& channel = smChannels[peer];
  if (threadIdx.x == 0) {
    channel.signal();
    channel.wait();
  }
  __syncthreads();
  channel.get<16, true>(/*remoteOffset=*/0, /*localOffset=*/bytes, bytes, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    channel.relaxedSignal();
    while (!channel.poll()) {
    }
  }
}

// Packets arrive in the second half of the peer's memory and are twice as long as their payload. The payload is written
// after the sent data. type: 8 or 16 bytes, otherwise the default packet.
extern "C" __global__ void mscclppPackets(DeviceHandle<mscclpp::MemoryChannel>* smChannels, int peer,
                                          int bytes, int flag, int type) {
  mscclpp::MemoryChannelDeviceHandle& channel = smChannels[peer];
  if (type == 8) {
    channel.putPackets<mscclpp::LL8Packet>(2 * bytes, 0, bytes, threadIdx.x, blockDim.x, flag);
    channel.getPackets<mscclpp::LL8Packet>(2 * bytes, bytes, bytes, threadIdx.x, blockDim.x, flag);
  } else if (type == 16) {
    channel.putPackets<mscclpp::LL16Packet>(2 * bytes, 0, bytes, threadIdx.x, blockDim.x, flag);
    channel.getPackets<mscclpp::LL16Packet>(2 * bytes, bytes, bytes, threadIdx.x, blockDim.x, flag);
  } else {
    channel.putPackets(2 * bytes, 0, bytes, threadIdx.x, blockDim.x, flag);
    channel.getPackets(2 * bytes, bytes, bytes, threadIdx.x, blockDim.x, flag);
  }
}

// A type that no constructor makes without arguments.
struct Pair {
  float first;
  float second;

  __device__ Pair(float a, float b) : first(a), second(b) {}
};

template <class T>
__device__ bool isSame(const T& a, const T& b) {
  bool same = true;
  for (unsigned i = 0; i < sizeof(T); ++i) {
    same = same && reinterpret_cast<const char*>(&a)[i] == reinterpret_cast<const char*>(&b)[i];
  }
  return same;
}

// Values of every size that channels move at once. This rank's memory has at index i of each type
// the value rank + i; wrong counts what the peer's memory does not hold.
template <class T, class ValueOf>
__device__ void checkScalar(const mscclpp::SmChannelDeviceHandle& channel, int rank, int peer,
                            int index, ValueOf valueOf, unsigned* wrong) {
  channel.write<T>(index, valueOf(rank + index));
  channel.signal();
  channel.wait();
  *wrong += !isSame<T>(static_cast<const T*>(channel.source)[index], valueOf(peer + index));
  *wrong += !isSame<T>(channel.read<T>(index), valueOf(rank + index));
}

extern "C" __global__ void mscclppReadWrite(mscclpp::SmChannelDeviceHandle* smChannels, int rank,
                                            int peer, unsigned* wrong) {
  const mscclpp::SmChannelDeviceHandle& channel = smChannels[peer];
  checkScalar<bool>(channel, rank, peer, 1, [](int i) { return i % 2 != 0; }, wrong);
  checkScalar<signed char>(channel, rank, peer, 2, [](int i) { return (signed char)(-i); }, wrong);
  checkScalar<short>(channel, rank, peer, 2, [](int i) { return short(1000 * i); }, wrong);
  checkScalar<float>(channel, rank, peer, 2, [](int i) { return 0.5f * i; }, wrong);
  checkScalar<double>(channel, rank, peer, 2, [](int i) { return 0.25 * i; }, wrong);
  checkScalar<Pair>(channel, rank, peer, 4, [](int i) { return Pair(i, -i); }, wrong);
  checkScalar<float4>(channel, rank, peer, 4,
                      [](int i) { return float4{1.f * i, 2.f * i, 3.f * i, 4.f * i}; }, wrong);
}

// One thread requests the transfer, and the grid computes independent values: the numbers after both halves of memory.
extern "C" __global__ void mscclppOverlap(mscclpp::SimpleProxyChannelDeviceHandle* proxyChannels,
                                          int peer, int* memory, int count) {
  const int tid = threadIdx.x + blockIdx.x * blockDim.x;
  if (tid == 0) {
    proxyChannels[peer].putWithSignal(count * sizeof(int), 0, count * sizeof(int));
  }
  for (int i = tid; i < count; i += gridDim.x * blockDim.x) {
    memory[2 * count + i] = 3 * i;
  }
  if (tid == 0) {
    proxyChannels[peer].wait();
    proxyChannels[peer].flush();
  }
}

// An all-to-all by proxies, one pair of partners after the other: a block for each other rank.
// Chunk j of memory is for rank j; what comes from rank j goes to chunk nRanks + j. The syncer is
// an argument, because a variable of the module would be one for all ranks of a process that share
// a GPU.
extern "C" __global__ void mscclppAllToAll(DeviceHandle<mscclpp::SimpleProxyChannel>* proxyChannels,
                                           mscclpp::DeviceSyncer* deviceSyncer, int rank, int nRanks,
                                           size_t elements) {
  const size_t bytes = elements * sizeof(int);
  const int peer = (int)blockIdx.x + ((int)blockIdx.x >= rank ? 1 : 0);
  DeviceHandle<mscclpp::SimpleProxyChannel> channel = proxyChannels[peer];
  for (int distance = 1; distance < nRanks; ++distance) {
    if (threadIdx.x == 0 && (rank + distance) % nRanks == peer) {
      channel.putWithSignalAndFlush((nRanks + rank) * bytes, peer * bytes, bytes);
    }
    if (threadIdx.x == 0 && (peer + distance) % nRanks == rank) {
      channel.wait();
    }
    deviceSyncer->sync(nRanks - 1);
  }
}

// Whether a rank is on another host than this one; hosts have perHost ranks each.
__device__ bool isRemote(int peer, int rank, int perHost) { return peer / perHost != rank / perHost; }

// Puts a chunk to every other rank, and waits for theirs. sourceOf(peer) is where it begins.
template <class SourceOf>
__device__ void exchangeChunks(DeviceHandle<mscclpp::ProxyChannel>* proxyChannels,
                               DeviceHandle<mscclpp::SmChannel>* smChannels, int target,
                               SourceOf sourceOf, int bytes, int rank, int nRanks, int perHost) {
  for (int peer = 0; peer < nRanks; ++peer) {
    if (isRemote(peer, rank, perHost)) {
      mscclpp::DeviceHandle<mscclpp::ProxyChannel>& channel = proxyChannels[peer];
      if (threadIdx.x == 0) {
        channel.putWithSignal(target, sourceOf(peer), bytes);
      }
    } else if (peer != rank) {
      mscclpp::DeviceHandle<mscclpp::SmChannel>& channel = smChannels[peer];
      channel.put<16, true>(target, sourceOf(peer), bytes, threadIdx.x, blockDim.x);
      __syncthreads();
      if (threadIdx.x == 0) {
        channel.signal();
      }
    }
  }
  for (int peer = 0; threadIdx.x == 0 && peer < nRanks; ++peer) {
    if (isRemote(peer, rank, perHost)) {
      proxyChannels[peer].wait();
    } else if (peer != rank) {
      smChannels[peer].wait();
    }
  }
  __syncthreads();
}

// An all-reduce in one block: every rank adds up its chunk of all ranks, and sends the sum to all. memory: data,
// followed by scratch of equal size.
extern "C" __global__ void mscclppAllPairs(DeviceHandle<mscclpp::ProxyChannel>* proxyChannels,
                                           DeviceHandle<mscclpp::SmChannel>* smChannels, int* memory,
                                           int chunk, int rank, int nRanks, int perHost) {
  const int bytes = chunk * sizeof(int);
  exchangeChunks(proxyChannels, smChannels, (nRanks + rank) * bytes,
                 [=](int peer) { return peer * bytes; }, bytes, rank, nRanks, perHost);
  for (int peer = 0; peer < nRanks; ++peer) {
    for (int i = threadIdx.x; peer != rank && i < chunk; i += blockDim.x) {
      memory[rank * chunk + i] += memory[(nRanks + peer) * chunk + i];
    }
  }
  __syncthreads();
  exchangeChunks(proxyChannels, smChannels, rank * bytes, [=](int) { return rank * bytes; }, bytes,
                 rank, nRanks, perHost);
}

// A barrier of blocks that are not the first of their grid; the others take no part. Each of them writes its word, and
// reads the others'.
extern "C" __global__ void mscclppSyncSome(mscclpp::DeviceSyncer* deviceSyncer, int blocks,
                                           int rounds, unsigned* values, unsigned* wrong) {
  const int first = gridDim.x - blocks;
  if ((int)blockIdx.x < first) {
    return;
  }
  for (int round = 1; round <= rounds; ++round) {
    if (threadIdx.x == round % blockDim.x) {
      values[blockIdx.x] = round;
    }
    deviceSyncer->sync(blocks);
    for (int block = first + (int)threadIdx.x; block < (int)gridDim.x; block += blockDim.x) {
      if (values[block] != (unsigned)round) {
        atomicAdd(wrong, 1u);
      }
    }
    deviceSyncer->sync(blocks);
  }
}
