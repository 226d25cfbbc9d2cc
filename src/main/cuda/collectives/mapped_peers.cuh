// SPDX-License-Identifier: Apache-2.0
// The argument of kernels of collectives on mapped memory, and the flags and barriers between the blocks of
// all ranks.
//
// Kernels that may be launched without those of other collectives have a region in the memory of every rank,
// to which the peers write:
//
//   0         uint32 epochs[kMaxSmallBlocks]                       the epochs of this rank's blocks
//   1920      uint64 flags[2 sets][4 points][kMaxBlocks][kMaxRanks]  raised by the rank of that index
//   165760    the region's own areas: packets, scratch
//
// An epoch is the number of a launch in the region. It is kept in device memory, not passed as an argument,
// so that a graph can be replayed. All blocks agree on it, also those that a launch does not use.
//
// There are two sets of everything that peers write, which alternate by epoch. Two are enough, because EVERY
// LAUNCH WAITS FOR SOMETHING THAT EVERY PEER WROTE IN THE SAME EPOCH. A rank that writes to a set in epoch e
// has completed epoch e - 1. So every peer had begun e - 1, and had therefore completed e - 2, the last epoch
// that used the set, whatever kernels and grids those launches had. A kernel that exchanges nothing with some
// peer must still pass a barrier with it.
//
// Two more rules: the addresses, sizes and grid of a launch are the same on every rank; an area is used with
// one kind of packet only, because the payload of one kind could look like the flag of another.
#pragma once

#include <fluxccl/atomics.cuh>
#include <fluxccl/config.cuh>
#include <fluxccl/poll.cuh>
#include <fluxccl/ptx.cuh>

namespace fluxccl {
namespace collectives {

// Number of lanes of a warp, and the mask of all of them.
constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

// The twin of io.fluxccl.collective.cuda.MappedPeers. Addresses are as mapped on this rank, by rank. The
// addresses of the peers' inputs and outputs are null if these are not registered.
struct MappedPeers {
  static constexpr int kMaxRanks = 16;
  static constexpr int kMaxBlocks = 160;
  // Most blocks of launches that raise no flags and whose blocks have 128 threads.
  static constexpr int kMaxSmallBlocks = 3 * kMaxBlocks;
  static constexpr int kPoints = 4;
  static constexpr uint32_t kFlagsOffset = kMaxSmallBlocks * sizeof(uint32_t);
  static constexpr uint32_t kAreasOffset =
      kFlagsOffset + 2 * kPoints * kMaxBlocks * kMaxRanks * sizeof(uint64_t);

  uint8_t* inputs[kMaxRanks];
  uint8_t* outputs[kMaxRanks];
  uint8_t* states[kMaxRanks];
  AbortFlag* abort;
  int32_t rank;
  int32_t nRanks;

#if defined(FLUXCCL_CUDA)
  // Returns (rank + steps) % nRanks, 0 <= steps < nRanks. If all ranks visit their peers in this order, they
  // visit different peers at the same time.
  FLUXCCL_DEVICE int successor(int steps) const {
    const int peer = rank + steps;
    return peer < nRanks ? peer : peer - nRanks;
  }

  FLUXCCL_DEVICE int predecessor(int steps) const {
    const int peer = rank - steps;
    return peer < 0 ? peer + nRanks : peer;
  }

  // Returns the address of an area of a rank's state; the offset counts from the state's start.
  FLUXCCL_DEVICE uint8_t* area(int at, uint64_t offset) const { return states[at] + offset; }
#endif
};
FLUXCCL_ASSERT_OFFSET(MappedPeers, abort, 384);
FLUXCCL_ASSERT_SIZE(MappedPeers, 400);

#if defined(FLUXCCL_CUDA)

// The meaning of flags. A kernel may use a point for any purpose, but must only raise a flag within a launch.
enum class Point {
  // The peer has begun: its input is complete, and its output may be written.
  ENTERED,
  // The peer no longer accesses any rank's memory.
  LEFT,
  // The step up to which the peer has sent.
  SENT,
  // The step up to which the peer has received.
  RECEIVED
};

FLUXCCL_DEVICE uint32_t* epochs(const MappedPeers& peers) {
  return reinterpret_cast<uint32_t*>(peers.states[peers.rank]);
}

// Returns the epoch of this block's last launch. Past the first-level cache, which may hold the line since a block of
// the launch before, which this one overlaps, loaded it.
FLUXCCL_DEVICE uint32_t lastEpoch(const uint32_t* epochs) { return __ldcg(epochs + blockIdx.x); }

FLUXCCL_DEVICE uint32_t epochAfter(uint32_t before) { return before + 1 == 0 ? 2 : before + 1; }

// Begins a launch and returns its epoch. Must be called before everything else, because the launch may
// overlap the launches before and after it. An epoch is never 0, the initial value in memory. After the
// largest number follows 2, because even and odd epochs alternate between the sets.
//
// Calls loadFirst() while the epoch is being loaded; it loads the data that the launch sends first. Waiting
// for the epoch first would delay the send by a tenth of a short launch.
template <class LoadFirst>
FLUXCCL_DEVICE uint32_t beginEpoch(const MappedPeers& peers, LoadFirst loadFirst) {
  awaitLaunchBefore();
  letNextLaunchBegin();
  const uint32_t before = lastEpoch(epochs(peers));
  loadFirst();
  return epochAfter(before);
}

FLUXCCL_DEVICE uint32_t beginEpoch(const MappedPeers& peers) {
  return beginEpoch(peers, [] {});
}

// Number by which an aborted launch advances its epoch. No peer reaches that epoch while the lane exists, so
// no peer mistakes data of later launches for data of the aborted one. The number is odd: the next launch
// uses the same set again, and repeated additions return to an earlier epoch only after very many.
constexpr uint32_t kAbortedEpochs = (1u << 20) + 1;

// Ends a launch: stores the epoch of this block and, in block 0, of the blocks that the launch does not use.
// No block of this launch reads the latter, and the next launch begins only when this one has ended. All
// threads of the block must have passed a __syncthreads() since beginEpoch. done: false if the job was
// aborted.
FLUXCCL_DEVICE void endEpoch(uint32_t* epochs, uint32_t epoch, bool done) {
  const uint32_t ended = done ? epoch : epoch + kAbortedEpochs;
  if (threadIdx.x == 0) {
    epochs[blockIdx.x] = ended;
  }
  if (blockIdx.x == 0) {
    // Four at a time, beyond the next multiple of four.
    const uint32_t fours = (gridDim.x + 3) / 4;
    if (gridDim.x + threadIdx.x < 4 * fours) {
      epochs[gridDim.x + threadIdx.x] = ended;
    }
    for (uint32_t i = fours + threadIdx.x; i < MappedPeers::kMaxSmallBlocks / 4; i += blockDim.x) {
      reinterpret_cast<uint4*>(epochs)[i] = make_uint4(ended, ended, ended, ended);
    }
  }
}

FLUXCCL_DEVICE void endEpoch(const MappedPeers& peers, uint32_t epoch, bool done) {
  endEpoch(epochs(peers), epoch, done);
}

// Returns the address of the flag that rank `from` raises at rank `at`, for a block.
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

// Raises the flag for a peer's block of the same index: this block has reached a step. Releases everything
// that this thread did before; it releases stores of other threads only if a barrier of the block lies
// between. Pairs with the acquire in awaitPeer.
FLUXCCL_DEVICE void signalPeer(const MappedPeers& peers, int peer, Point point, uint32_t epoch,
                               uint32_t step = 0) {
  storeReleaseSys(flag(peers, peer, point, blockIdx.x, peers.rank, epoch), flagValue(epoch, step));
}

// As signalPeer, but relaxed: orders no other accesses. For pacing only.
FLUXCCL_DEVICE void signalPeerRelaxed(const MappedPeers& peers, int peer, Point point, uint32_t epoch,
                                      uint32_t step = 0) {
  storeRelaxedSys(flag(peers, peer, point, blockIdx.x, peers.rank, epoch), flagValue(epoch, step));
}

// Waits until a peer's block of the same index has reached a step. This thread then sees what the peer
// released. Returns false if the job was aborted.
FLUXCCL_DEVICE bool awaitPeer(const MappedPeers& peers, int peer, Point point, uint32_t epoch,
                              uint32_t step = 0) {
  const uint64_t* theirs = flag(peers, peers.rank, point, blockIdx.x, peer, epoch);
  return waitUntil(peers.abort, peer, [&] {
    // Pairs with signalPeer. The set holds this epoch's steps or older epochs' flags, nothing newer.
    const uint64_t value = loadAcquireSys(theirs);
    return static_cast<uint32_t>(value >> 32) == epoch && static_cast<uint32_t>(value) >= step;
  });
}

// A barrier of this block and the blocks of the same index on all ranks. If it returns true, all reads and
// writes that their threads made before it are complete. Returns false, to all threads, if the job was
// aborted: then peers' memory must not be accessed any more.
FLUXCCL_DEVICE bool meet(const MappedPeers& peers, Point point, uint32_t epoch, uint32_t step = 0) {
  bool met = true;
  // So that the release below covers all threads of the block.
  __syncthreads();
  const int peer = threadIdx.x;
  if (peer < peers.nRanks && peer != peers.rank) {
    signalPeer(peers, peer, point, epoch, step);
    met = awaitPeer(peers, peer, point, epoch, step);
  }
  return __syncthreads_and(met);
}

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
