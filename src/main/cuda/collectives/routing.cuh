// SPDX-License-Identifier: Apache-2.0
// The base of the kernels of the family "cuda" that read the sizes of a collective from device memory. A launch works in slices. A slice is what fits into the slots of packets; it has an epoch of its own.
//
//   area    headers[2 sets][nRanks]    LL8 packets: what a rank sends in this launch, or why it sends nothing
//           slots[2 sets][nRanks]      LL128 rows of the slice
//
// The block that sends a row has the same index as the block that receives it. Every block notifies the blocks
// of its index when it begins a slice, and waits for their notice before it ends the slice. So a block that
// writes to a set again knows that its peers' blocks have read what was there: they had begun the slice in
// between. Only block 0 sends headers. All blocks of a launch read them, in the first slice, before they take
// part in the second or in the launch after.
#pragma once

#include <fluxccl/atomics.cuh>
#include <fluxccl/packet.cuh>
#include <fluxccl/ptx.cuh>

#include "mapped_peers.cuh"
#include "packet_rows.cuh"

namespace fluxccl {
namespace collectives {

// Kinds of invalid values that a kernel has read. The twin of io.fluxccl.collective.cuda.Routes.Fault.
enum class Fault : uint32_t {
  NONE,
  // all-to-all-v: a send count above its bound or below 0; counts that lie outside of the input; counts for
  // which the receiver has no room.
  COUNT,
  RANGE,
  ROOM,
  // dispatch: an id that is no expert; more tokens than the receiver's capacity.
  EXPERT,
  CAPACITY,
  // combine: a row that the input does not have.
  ROW
};

// The twin of the struct in io.fluxccl.collective.cuda.Routes.
struct RouteArea {
  // The first words of a header: the fault, and a value of 64 bits.
  static constexpr uint32_t kHeaderWords = 3;
  static constexpr uint32_t kHeaderBytes = 8192;

  // Offsets in a state: a word that is 0, or the epoch of the launch in which this rank has reported a fault; headers;
  // slots.
  uint64_t failed;
  uint64_t headers;
  uint64_t slots;
  uint64_t slotBytes;
  // In pinned memory: the last fault, for the host.
  uint64_t* fault;

#if defined(FLUXCCL_CUDA)
  FLUXCCL_DEVICE Ll8Packet* header(const MappedPeers& peers, int at, int from, uint32_t epoch) const {
    return reinterpret_cast<Ll8Packet*>(
        peers.area(at, headers + ((epoch & 1) * peers.nRanks + from) * kHeaderBytes));
  }

  FLUXCCL_DEVICE uint8_t* row(const MappedPeers& peers, int at, int from, uint32_t epoch, uint32_t row) const {
    return peers.area(at, slots + ((epoch & 1) * peers.nRanks + from) * slotBytes + row * Ll128Rows::kSize);
  }

  FLUXCCL_DEVICE uint32_t* failedWord(const MappedPeers& peers) const {
    return reinterpret_cast<uint32_t*>(peers.area(peers.rank, failed));
  }

  // Returns the first epoch of the launch that has reported a fault, or 0.
  FLUXCCL_DEVICE uint32_t faultyEpoch(const MappedPeers& peers) const { return loadRelaxedGpu(failedWord(peers)); }

  // Returns whether a launch other than the one that began with `epoch` has reported a fault. Then the job is about to
  // be aborted, and peers may never send data for this launch. All threads of a launch get the same result.
  static FLUXCCL_DEVICE bool hasFailed(uint32_t faultyEpoch, uint32_t epoch) {
    return faultyEpoch != 0 && faultyEpoch != epoch;
  }

  // Reports a fault to the host, which aborts the job once this launch has ended, and to later launches. epoch:
  // the launch's first.
  FLUXCCL_DEVICE void report(const MappedPeers& peers, uint32_t epoch, Fault what, int blamed,
                             uint64_t value) const {
    storeRelaxedSys(fault, static_cast<uint64_t>(what) << 56 | static_cast<uint64_t>(blamed) << 48 |
                               (value & ((1ull << 48) - 1)));
    storeRelaxedGpu(failedWord(peers), epoch);
  }
#endif
};
FLUXCCL_ASSERT_SIZE(RouteArea, 40);

#if defined(FLUXCCL_CUDA)

FLUXCCL_DEVICE uint32_t nextEpoch(uint32_t epoch) { return epoch + 1 == 0 ? 2 : epoch + 1; }

// Index of this warp among those of all blocks; neighbouring indexes are of different blocks.
FLUXCCL_DEVICE uint32_t warpOfLaunch() { return threadIdx.x / kLanes * gridDim.x + blockIdx.x; }
FLUXCCL_DEVICE uint32_t warpsOfLaunch() { return blockDim.x / kLanes * gridDim.x; }

// Called by all threads of a block, before it writes to the peers' sets of this epoch.
FLUXCCL_DEVICE void beginSlice(const MappedPeers& peers, uint32_t epoch) {
  const int peer = threadIdx.x;
  if (peer < peers.nRanks && peer != peers.rank) {
    // Relaxed is enough: only loads of packets precede it, and they have returned their values.
    signalPeerRelaxed(peers, peer, Point::ENTERED, epoch);
  }
}

// Returns whether `going` is true for all threads of the block and the peers' blocks have begun this slice. All threads
// of the block have then read their data of the slice.
FLUXCCL_DEVICE bool endSlice(const MappedPeers& peers, uint32_t epoch, bool going) {
  const int peer = threadIdx.x;
  if (going && peer < peers.nRanks && peer != peers.rank) {
    going = awaitPeer(peers, peer, Point::ENTERED, epoch);
  }
  return __syncthreads_and(going);
}

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
