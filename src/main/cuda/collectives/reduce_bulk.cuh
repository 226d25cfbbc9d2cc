// Two shots for some tens of MiB of floating-point elements, on compute capability 9.0: each rank gets
// its part as sentinel packets, peer by peer so that no link is crowded; reduces it into shared
// memory; and from there bulk copies, which need no thread, carry it to the peers' outputs, peer by
// peer again.
//
//   scratch    [2 sets][nRanks] slots of the task's slotBytes: a rank's input for this part
//
// A block has the same range of rows of every part, here and on all peers.
#pragma once

#include "reduction.cuh"
#include "scratch.cuh"

namespace fluxccl {
namespace collectives {

// Rows of a piece: so many are reduced while those of the piece before are carried away. Two pieces
// are the shared memory of a block; io.fluxccl.collective.cuda.BulkReduce knows.
constexpr uint32_t kPieceRows = 64;

// So many rows at once for a peer, as one copy.
constexpr uint32_t kCopyRows = 16;

// Sends a block's rows of each part, in the order in which every rank sends to another peer.
template <typename T, class Rows>
FLUXCCL_DEVICE void scatterRows(const MappedPeers& peers, const Reduction& task, const Scratch& scratch,
                                uint32_t begin, uint32_t end, uint32_t epoch) {
  constexpr int kAtOnce = 4;
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warps = blockDim.x / kLanes;
  const uint32_t slot = task.slot(peers, 0, 1, peers.rank, epoch);
#pragma unroll 1
  for (int k = 1; k < peers.nRanks; ++k) {
    const int peer = peers.ahead(k);
    const Piece<T> part = task.inputPart<T>(peers, peer);
    uint8_t* rows = scratch.areas[peer] + slot;
    for (uint32_t first = begin + threadIdx.x / kLanes; first < end; first += kAtOnce * warps) {
      typename Rows::Word words[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * warps < end) {
          words[i] = part.template load<Rows>(first + i * warps, lane);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * warps < end) {
          Rows::send(rows + (first + i * warps) * Rows::kSize, lane, words[i], epoch);
        }
      }
    }
  }
}

// Copies bytes from shared memory to an output; all threads of the block call it. What can't go in bulk,
// the threads copy, an element at a time.
template <typename T>
FLUXCCL_DEVICE void carryAway(uint8_t* to, const uint8_t* shared, uint32_t bytes, uint32_t bytesAtOnce) {
  const bool aligned = reinterpret_cast<uint64_t>(to) % 16 == 0;
  const uint32_t inBulk = aligned ? bytes / 16 * 16 : 0;
  if (threadIdx.x == 0) {
    for (uint32_t at = 0; at < inBulk; at += bytesAtOnce) {
      bulkStore(to + at, shared + at, min(bytesAtOnce, inBulk - at));
    }
  }
  for (uint32_t at = inBulk + threadIdx.x * sizeof(T); at < bytes; at += blockDim.x * sizeof(T)) {
    *reinterpret_cast<T*>(to + at) = *reinterpret_cast<const T*>(shared + at);
  }
}

// For everybody, whose outputs must be mapped, or for the owners.
template <typename T>
FLUXCCL_DEVICE void reduceBulk(const MappedPeers& peers, const Reduction& task, const Scratch& scratch) {
  using Rows = SentinelRows<sizeof(T)>;
  const uint32_t epoch = beginEpoch(peers);
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warp = threadIdx.x / kLanes;
  const uint32_t warps = blockDim.x / kLanes;
  const uint32_t rows = rowsOf<Rows>(task.partBytes);
  const uint32_t perBlock = (rows + gridDim.x - 1) / gridDim.x;
  const uint32_t begin = min(rows, blockIdx.x * perBlock);
  const uint32_t end = min(rows, begin + perBlock);
  const Piece<T> input = task.inputPart<T>(peers, peers.rank);
  const Piece<T> output = task.outputPart<T>(peers, peers.rank);
  uint8_t* inbound = scratch.areas[peers.rank] + task.slot(peers, 0, 1, 0, epoch);
  const bool forAll = task.target == Reduction::kEverybody;

  scatterRows<T, Rows>(peers, task, scratch, begin, end, epoch);
  uint32_t half = 0;
  bool arrived = true;
  for (uint32_t first = begin; first < end; first += kPieceRows) {
    uint8_t* piece = dynamicShared() + half * kPieceRows * Rows::kSize;
    half ^= 1;
    const uint32_t last = min(end, first + kPieceRows);
    for (uint32_t row = first + warp; arrived && row < last; row += warps) {
      typename Rows::Word reduced;
      arrived = reduceRow<T, Rows>(peers, task, inbound + row * Rows::kSize, lane, epoch,
                                   input.template load<Rows>(row, lane), reduced);
      if (arrived) {
        output.template store<Rows>(row, lane, reduced);
        reinterpret_cast<uint4*>(piece + (row - first) * Rows::kSize)[lane] = reduced;
      }
    }
    // What this thread has put into shared memory, bulk copies may read behind the barrier.
    if (forAll) {
      fenceBulkShared();
    }
    arrived = __syncthreads_and(arrived);
    if (!arrived) {
      // Tells nobody that the outputs are complete; but bulk copies may still read this block's memory.
      if (forAll && threadIdx.x == 0) {
        bulkWait<0>();
      }
      endEpoch(peers, epoch, false);
      return;
    }
    const uint64_t at = static_cast<uint64_t>(first) * Rows::kPayload;
    // In place, these stores replace input that the peers' threads have read. No flag says so, but what
    // is stored is made of what they read: it can't be stored before.
    if (forAll && at < input.size) {
      const uint32_t bytes = static_cast<uint32_t>(
          min(input.size - at, static_cast<uint64_t>(last - first) * Rows::kPayload));
#pragma unroll 1
      for (int k = 1; k < peers.nRanks; ++k) {
        carryAway<T>(peers.outputs[peers.ahead(k)] + task.outputOffset(peers.rank) + at, piece, bytes,
                     kCopyRows * Rows::kSize);
      }
      if (threadIdx.x == 0) {
        bulkCommit();
        // The next piece goes where the one before this lay.
        bulkWaitRead<1>();
      }
      // Behind it every thread may write there: also what others have copied by hand is copied.
      __syncthreads();
    }
  }
  if (forAll && threadIdx.x == 0) {
    bulkWait<0>();
    // What was copied is released with what this thread does next: it tells the peers.
    fenceBulk();
  }
  // The outputs are complete when everybody has written them; an owner's is now.
  endEpoch(peers, epoch, forAll ? meet(peers, Point::LEFT, epoch) : __syncthreads_and(true));
}

}  // namespace collectives
}  // namespace fluxccl
