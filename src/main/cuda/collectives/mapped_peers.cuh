// What a kernel of a collective on mapped memory is given, and how its blocks meet the peers' blocks.
//
// A family of kernels has a state on every rank, in which the others write:
//
//   0         uint32 epochs[kMaxBlocks]                            launches that each block has seen; this rank's own
//   640       uint64 flags[2 sets][4 points][kMaxBlocks][kMaxRanks]  raised by the rank of that index
//   164480    the family's own areas: packets, scratch
//
// An epoch is one launch of the family. It lies in device memory and not among the arguments, so that
// a graph can be replayed. All blocks, also those that a launch does not have, always agree on it.
//
// Two sets of everything that peers write take turns by epoch. That is enough, because EVERY LAUNCH
// WAITS FOR SOMETHING THAT EVERY PEER WROTE IN THE SAME EPOCH: who writes a set in epoch e has ended
// epoch e - 1, so every peer had begun e - 1, so every peer had ended e - 2, when the set was last
// used, whatever the kernels and grids of those launches were. A kernel that leaves a peer out must
// still meet it.
//
// What else must hold: the addresses, sizes and grid of a launch are the same on every rank; an area
// is used with one kind of packet only, because the payload of one could look like the flag of
// another.
#pragma once

#include <fluxccl/atomics.cuh>
#include <fluxccl/config.cuh>
#include <fluxccl/poll.cuh>
#include <fluxccl/ptx.cuh>

namespace fluxccl {
namespace collectives {

// Of a warp.
constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// The twin of io.fluxccl.collective.cuda.MappedPeers. Addresses are those of this rank's mappings, by
// rank; those of the peers' inputs and outputs are null where they are not registered.
struct MappedPeers {
  static constexpr int kMaxRanks = 16;
  static constexpr int kMaxBlocks = 160;
  static constexpr int kPoints = 4;
  static constexpr uint32_t kFlagsOffset = kMaxBlocks * sizeof(uint32_t);
  static constexpr uint32_t kAreasOffset =
      kFlagsOffset + 2 * kPoints * kMaxBlocks * kMaxRanks * sizeof(uint64_t);

  uint8_t* inputs[kMaxRanks];
  uint8_t* outputs[kMaxRanks];
  uint8_t* states[kMaxRanks];
  AbortFlag* abort;
  int32_t rank;
  int32_t nRanks;

#if defined(FLUXCCL_CUDA)
  // The rank so many steps ahead of this one, 0 <= steps < nRanks: the order in which to begin with
  // another peer than everybody else.
  FLUXCCL_DEVICE int ahead(int steps) const {
    const int peer = rank + steps;
    return peer < nRanks ? peer : peer - nRanks;
  }

  FLUXCCL_DEVICE int behind(int steps) const {
    const int peer = rank - steps;
    return peer < 0 ? peer + nRanks : peer;
  }

  // An area of a rank's state; the offset counts from the state's start.
  FLUXCCL_DEVICE uint8_t* area(int at, uint64_t offset) const { return states[at] + offset; }
#endif
};
FLUXCCL_ASSERT_OFFSET(MappedPeers, abort, 384);
FLUXCCL_ASSERT_SIZE(MappedPeers, 400);

#if defined(FLUXCCL_CUDA)

// What flags tell. A kernel may use each for whatever it likes, but a flag only goes up within a launch.
enum class Point {
  // The peer has begun: its input is there, its output may be written.
  ENTERED,
  // The peer is done with everybody's memory.
  LEFT,
  // The peer has sent, a step at a time.
  SENT,
  // The peer has received, a step at a time.
  RECEIVED
};

FLUXCCL_DEVICE uint32_t* epochs(const MappedPeers& peers) {
  return reinterpret_cast<uint32_t*>(peers.states[peers.rank]);
}

// The epoch of this launch. Never 0, which is what memory holds before the first; after the last
// number the next even one, because odd and even epochs take turns with the sets.
// Stands before everything else: the launch may overlap those before and behind it.
FLUXCCL_DEVICE uint32_t beginEpoch(const MappedPeers& peers) {
  awaitLaunchBefore();
  letNextLaunchBegin();
  const uint32_t next = epochs(peers)[blockIdx.x] + 1;
  return next == 0 ? 2 : next;
}

// How far an aborted launch leaves its epoch behind: no peer gets there while the lane lasts, so none takes what the
// launches behind it send for its own. The next epoch has the same set again, and a multiple of it comes back late.
constexpr uint32_t kAbortedEpochs = (1u << 20) + 1;

// Ends the launch; also for the blocks that it does not have. No block of this launch reads those, and
// the next launch begins when this one has ended. Between beginEpoch and this all threads of the block
// have been through a __syncthreads(). done: whether the job was not aborted.
FLUXCCL_DEVICE void endEpoch(const MappedPeers& peers, uint32_t epoch, bool done) {
  const uint32_t ended = done ? epoch : epoch + kAbortedEpochs;
  if (threadIdx.x == 0) {
    epochs(peers)[blockIdx.x] = ended;
  }
  if (blockIdx.x == 0) {
    for (uint32_t i = gridDim.x + threadIdx.x; i < MappedPeers::kMaxBlocks; i += blockDim.x) {
      epochs(peers)[i] = ended;
    }
  }
}

// The flag that rank from raises at rank at, for a block.
FLUXCCL_DEVICE uint64_t* flag(const MappedPeers& peers, int at, Point point, uint32_t block, int from,
                              uint32_t epoch) {
  uint64_t* flags = reinterpret_cast<uint64_t*>(peers.states[at] + MappedPeers::kFlagsOffset);
  const uint32_t row = ((epoch & 1) * MappedPeers::kPoints + static_cast<uint32_t>(point)) *
                           MappedPeers::kMaxBlocks +
                       block;
  return flags + row * MappedPeers::kMaxRanks + from;
}

FLUXCCL_DEVICE uint64_t flagValue(uint32_t epoch, uint32_t step) {
  return static_cast<uint64_t>(epoch) << 32 | step;
}

// Tells the same block of a peer that this block has come to a step, and everything that this thread
// did before; other threads' stores only if a barrier of the block lies between. Pairs with
// awaitPeer.
FLUXCCL_DEVICE void tellPeer(const MappedPeers& peers, int peer, Point point, uint32_t epoch,
                             uint32_t step = 0) {
  storeReleaseSys(flag(peers, peer, point, blockIdx.x, peers.rank, epoch), flagValue(epoch, step));
}

// The same without what was done before: orders nothing, for pacing only.
FLUXCCL_DEVICE void nudgePeer(const MappedPeers& peers, int peer, Point point, uint32_t epoch,
                              uint32_t step = 0) {
  storeRelaxedSys(flag(peers, peer, point, blockIdx.x, peers.rank, epoch), flagValue(epoch, step));
}

// Waits until the same block of a peer has come to a step; what it told is seen by this thread. False
// when the job was aborted.
FLUXCCL_DEVICE bool awaitPeer(const MappedPeers& peers, int peer, Point point, uint32_t epoch,
                              uint32_t step = 0) {
  const uint64_t* theirs = flag(peers, peers.rank, point, blockIdx.x, peer, epoch);
  return waitUntil(peers.abort, peer, [&] {
    // Pairs with tellPeer. The set holds this epoch's steps or older epochs' flags, nothing newer.
    const uint64_t value = loadAcquireSys(theirs);
    return static_cast<uint32_t>(value >> 32) == epoch && static_cast<uint32_t>(value) >= step;
  });
}

// A barrier of this block and the blocks of the same index of all ranks. What any of their threads
// wrote or read before, they have done when this returns true. False, for all threads, when the job
// was aborted: then the peers' memory must not be touched any more.
FLUXCCL_DEVICE bool meet(const MappedPeers& peers, Point point, uint32_t epoch, uint32_t step = 0) {
  bool met = true;
  // Makes the release below stand for all threads of the block.
  __syncthreads();
  const int peer = threadIdx.x;
  if (peer < peers.nRanks && peer != peers.rank) {
    tellPeer(peers, peer, point, epoch, step);
    met = awaitPeer(peers, peer, point, epoch, step);
  }
  return __syncthreads_and(met);
}

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
