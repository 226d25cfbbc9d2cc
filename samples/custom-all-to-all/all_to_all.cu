// SPDX-License-Identifier: Apache-2.0
// A custom all-to-all: chunk j of rank i's input becomes chunk i of rank j's output.
//
// memory of every rank, in this order, chunk a multiple of 16 bytes:
//   input                        nRanks chunks
//   outputs of even, odd rounds  nRanks chunks each
//   packets of even, odd rounds  nRanks times two chunks each
//
// There are two outputs, used alternately: a rank that is one round ahead does not overwrite data
// that others still read. It cannot be two rounds ahead, because each round waits for all ranks.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

namespace {

struct Layout {
  uint64_t chunk;
  uint64_t nRanks;
  uint32_t parity;

  __device__ Layout(int64_t chunkBytes, int32_t ranks, int32_t round)
      : chunk(chunkBytes), nRanks(ranks), parity(round & 1) {}

  __device__ uint64_t input(uint32_t to) const { return to * chunk; }
  __device__ uint64_t output(uint32_t from) const { return ((1 + parity) * nRanks + from) * chunk; }
  __device__ uint64_t packets(uint32_t from) const {
    return ((3 + 2 * parity) * nRanks + 2 * from) * chunk;
  }
};

// Blocks are distributed among the ranks; the blocks for one rank share its chunks.
struct Share {
  uint32_t peer;
  uint32_t blocks;
  uint32_t threadId;
  uint32_t numThreads;

  __device__ Share(uint32_t rank, uint32_t nRanks)
      : peer((rank + blockIdx.x) % nRanks),
        blocks(gridDim.x / nRanks),
        threadId(blockIdx.x / nRanks * blockDim.x + threadIdx.x),
        numThreads(blocks * blockDim.x) {}
};

// Copies this rank's own chunk, which needs no signal.
__device__ void copyOwn(uint8_t* memory, const Layout& layout, const Share& share) {
  copy(memory + layout.output(share.peer), memory + layout.input(share.peer), layout.chunk,
       share.threadId, share.numThreads);
}

}  // namespace

// For large chunks: put and signal. The grid is a multiple of nRanks blocks; arrived: one zeroed
// word for each rank.
extern "C" __global__ void allToAll(const SmChannel* channels, int32_t rank, int32_t nRanks,
                                    uint8_t* memory, uint32_t* arrived, int64_t chunkBytes,
                                    int32_t round) {
  const Layout layout(chunkBytes, nRanks, round);
  const Share share(rank, nRanks);
  if (share.peer == static_cast<uint32_t>(rank)) {
    copyOwn(memory, layout, share);
    return;
  }
  const SmChannel channel = channels[share.peer];
  channel.put(layout.output(rank), layout.input(share.peer), layout.chunk, share.threadId,
              share.numThreads);
  __syncthreads();
  // The last block for this peer signals on behalf of all: it acquires what they have released.
  if (threadIdx.x == 0 && fetchAddAcqRelGpu(arrived + share.peer, 1) == share.blocks - 1) {
    storeRelaxedGpu(arrived + share.peer, 0);
    channel.signal();
    // After an abort no signal arrives; the host is notified of the abort as well.
    channel.wait();
  }
}

// By the proxies of the ranks, which leaves the multiprocessors to other kernels: ranks exchange chunks with one
// partner at a time. So the grid has a block for each other rank, and a barrier of all blocks after each exchange.
// syncer: zeroed.
extern "C" __global__ void allToAllByProxies(const SimpleProxyChannel* channels,
                                             DeviceSyncer* syncer, int32_t rank, int32_t nRanks,
                                             uint8_t* memory, int64_t chunkBytes, int32_t round) {
  const Layout layout(chunkBytes, nRanks, round);
  const int32_t peer = (rank + 1 + static_cast<int32_t>(blockIdx.x)) % nRanks;
  copy(memory + layout.output(rank), memory + layout.input(rank), layout.chunk,
       blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
  for (int32_t distance = 1; distance < nRanks; ++distance) {
    if (threadIdx.x == 0 && peer == (rank + distance) % nRanks) {
      channels[peer].putWithSignalAndFlush(layout.output(rank), layout.input(peer), layout.chunk);
    }
    if (threadIdx.x == 0 && rank == (peer + distance) % nRanks) {
      channels[peer].wait();
    }
    syncer->sync(nRanks - 1);
  }
}

// For small chunks: packets, which need no signal. round must not be 0, because it is the packets'
// flag.
extern "C" __global__ void allToAllPackets(const SmChannel* channels, int32_t rank, int32_t nRanks,
                                           uint8_t* memory, int64_t chunkBytes, int32_t round) {
  const Layout layout(chunkBytes, nRanks, round);
  const Share share(rank, nRanks);
  if (share.peer == static_cast<uint32_t>(rank)) {
    copyOwn(memory, layout, share);
    return;
  }
  const SmChannel channel = channels[share.peer];
  channel.putPackets<PacketType::LL16>(layout.packets(rank), layout.input(share.peer),
                                       layout.chunk, share.threadId, share.numThreads, round);
  channel.getPackets<PacketType::LL16>(layout.packets(share.peer), layout.output(share.peer),
                                       layout.chunk, share.threadId, share.numThreads, round);
}
