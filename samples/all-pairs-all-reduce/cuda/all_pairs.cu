// SPDX-License-Identifier: Apache-2.0
// The sample's kernels. A buffer has a chunk for each rank, followed by a slot for each rank's
// contribution to this rank's chunk.
#include <fluxccl/proxy_channel.cuh>
#include <fluxccl/sm_channel.cuh>

using namespace fluxccl;

// Adds the peers' contributions in the slots to this rank's chunk; called by numThreads threads.
__device__ void add(int* data, uint64_t chunk, int rank, int nRanks, uint64_t threadId,
                    uint64_t numThreads) {
  const uint64_t count = chunk / sizeof(int);
  int* own = data + rank * count;
  const int* slots = data + nRanks * count;
  for (uint64_t i = threadId; i < count; i += numThreads) {
    int sum = own[i];
    for (int peer = 0; peer < nRanks; ++peer) {
      sum += peer == rank ? 0 : slots[peer * count + i];
    }
    own[i] = sum;
  }
}

// The kernel that host code launches; chunk is in bytes.
extern "C" __global__ void add_chunks(int* data, uint64_t chunk, int rank, int nRanks) {
  add(data, chunk, rank, nRanks, blockIdx.x * uint64_t{blockDim.x} + threadIdx.x,
      uint64_t{gridDim.x} * blockDim.x);
}

// The channels of one buffer: to ranks of this host, and to the others.
struct Channels {
  const SmChannel* sm;
  int nSm;
  const ProxyChannel* proxies;
  int nProxies;

  // Puts a chunk into every peer's buffer, and signals. sourceOf(peer) returns the offset of the
  // chunk for that peer.
  template <typename SourceOf>
  __device__ void put(uint64_t target, SourceOf sourceOf, uint64_t chunk) const {
    // All threads must have written the data before it is put.
    __syncthreads();
    // The proxy's transfers first: the proxy moves its bytes while these threads move theirs.
    if (static_cast<int>(threadIdx.x) < nProxies) {
      const ProxyChannel& channel = proxies[threadIdx.x];
      channel.putWithSignal(target, sourceOf(channel.peer()), chunk);
    }
    for (int i = 0; i < nSm; ++i) {
      sm[i].put(target, sourceOf(sm[i].peer()), chunk, threadIdx.x, blockDim.x);
      __syncthreads();
      if (threadIdx.x == 0) {
        sm[i].signal();
      }
    }
  }

  // Waits for one signal of every peer, with one thread for each peer. Returns false, to all
  // threads, if the job was aborted.
  __device__ bool wait() const {
    bool arrived = true;
    const int i = threadIdx.x;
    if (i < nSm) {
      arrived = sm[i].wait();
    } else if (i < nSm + nProxies) {
      arrived = proxies[i - nSm].wait();
    }
    return __syncthreads_and(arrived);
  }
};

// The whole all-reduce in one kernel of one block.
extern "C" __global__ void all_pairs(const SmChannel* sm, int nSm, const ProxyChannel* proxies,
                                     int nProxies, int* data, uint64_t chunk, int rank,
                                     int nRanks) {
  const Channels channels{sm, nSm, proxies, nProxies};
  const uint64_t slot = (nRanks + rank) * chunk;
  channels.put(slot, [=](int peer) { return peer * chunk; }, chunk);
  if (!channels.wait()) {
    return;
  }
  add(data, chunk, rank, nRanks, threadIdx.x, blockDim.x);
  channels.put(rank * chunk, [=](int) { return rank * chunk; }, chunk);
  if (channels.wait() && static_cast<int>(threadIdx.x) < nProxies) {
    // The caller may use the buffer again: its bytes have been sent.
    proxies[threadIdx.x].flush();
  }
}
