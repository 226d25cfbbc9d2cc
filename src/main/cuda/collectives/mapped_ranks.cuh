// What a kernel of an all-reduce on mapped memory is given, and how its blocks meet the peers' blocks.
//
// Every rank has a buffer, to be reduced, and a state, of which the others use the flags and packets:
//
//   state        0  uint32 epochs[kMaxBlocks]                        how many launches each block has seen; this rank's own
//              256  uint32 flags[2][kMaxBlocks][kMaxRanks]           ENTERED and LEFT, raised to the epoch by the rank of that index
//             8448  packets, see all_reduce_packets.cuh
//
// An epoch is one launch. It lies in device memory and not among the arguments, so that a graph can be replayed. All
// blocks, also those that a launch does not have, always agree on it.
#pragma once

#include <fluxccl/atomics.cuh>
#include <fluxccl/config.cuh>
#include <fluxccl/poll.cuh>

namespace fluxccl {
namespace collectives {

constexpr int kMaxRanks = 16;
constexpr int kMaxBlocks = 64;
constexpr int kFlagsOffset = kMaxBlocks * sizeof(uint32_t);
constexpr int kPacketsOffset = kFlagsOffset + 2 * kMaxBlocks * kMaxRanks * sizeof(uint32_t);

// The twin of io.fluxccl.collective.MappedRanksHandle. Addresses are those of this rank's mappings, by rank.
struct MappedRanks {
  uint8_t* buffers[kMaxRanks];
  uint8_t* states[kMaxRanks];
  AbortFlag* abort;
  int32_t rank;
  int32_t nRanks;
  // How many packets a rank's slot holds, of an input that goes in one shot, and of a chunk.
  uint32_t oneShotPackets;
  uint32_t chunkPackets;
};
FLUXCCL_ASSERT_OFFSET(MappedRanks, abort, 256);
FLUXCCL_ASSERT_SIZE(MappedRanks, 280);

enum class MeetingPoint { ENTERED, LEFT };

FLUXCCL_DEVICE uint32_t* epochs(const MappedRanks& ranks) {
  return reinterpret_cast<uint32_t*>(ranks.states[ranks.rank]);
}

// The epoch of this launch. Never 0, which is what memory holds before the first; after the last number the next even
// one, because odd and even epochs take turns with packet slots.
FLUXCCL_DEVICE uint32_t beginEpoch(const MappedRanks& ranks) {
  uint32_t next = epochs(ranks)[blockIdx.x] + 1;
  return next == 0 ? 2 : next;
}

// Ends the launch; also for the blocks that it does not have. No block of this launch reads those, and the next launch
// begins when this one has ended.
FLUXCCL_DEVICE void endEpoch(const MappedRanks& ranks, uint32_t epoch) {
  // Every thread has read the epoch by now: all have been through a __syncthreads() since.
  if (threadIdx.x == 0) {
    epochs(ranks)[blockIdx.x] = epoch;
  }
  if (blockIdx.x == 0) {
    for (uint32_t i = gridDim.x + threadIdx.x; i < kMaxBlocks; i += blockDim.x) {
      epochs(ranks)[i] = epoch;
    }
  }
}

FLUXCCL_DEVICE uint32_t* flag(const MappedRanks& ranks, int at, MeetingPoint point, int from) {
  uint32_t* flags = reinterpret_cast<uint32_t*>(ranks.states[at] + kFlagsOffset);
  return flags + (static_cast<int>(point) * kMaxBlocks + blockIdx.x) * kMaxRanks + from;
}

// A barrier of this block and the blocks of the same index of all ranks. What any of their threads wrote or read
// before, they have done when this returns true. False, for all threads, when the job was aborted: then the peers'
// memory must not be touched any more.
FLUXCCL_DEVICE bool meet(const MappedRanks& ranks, MeetingPoint point, uint32_t epoch) {
  bool met = true;
  __syncthreads();
  int peer = threadIdx.x;
  if (peer < ranks.nRanks && peer != ranks.rank) {
    // Pairs with the acquire below, at the peer; the barrier above makes it stand for all threads of the block.
    storeReleaseSys(flag(ranks, peer, point, ranks.rank), epoch);
    uint32_t* theirs = flag(ranks, ranks.rank, point, peer);
    // A peer can't be further than this epoch, so what is not equal is earlier.
    met = waitUntil(ranks.abort, peer, [=] { return loadAcquireSys(theirs) == epoch; });
  }
  return __syncthreads_and(met);
}

}  // namespace collectives
}  // namespace fluxccl
