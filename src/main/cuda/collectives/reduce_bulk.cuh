// SPDX-License-Identifier: Apache-2.0
// Two shots for some tens of MiB of floating-point elements, on compute capability 9.0. Each rank receives
// its part as sentinel packets, from one peer after the other, so that no link is crowded. It reduces the
// part into shared memory. Bulk copies, which occupy no thread, then copy the result to the peers' outputs,
// again one peer after the other.
//
//   scratch    [2 sets][nRanks] slots of the task's slotBytes: a rank's input for this part
//
// A block handles the same range of rows of every part, on this rank and on all peers.
#pragma once

#include "reduction.cuh"
#include "scratch.cuh"

namespace fluxccl {
namespace collectives {

// Rows of a piece. One piece is reduced while bulk copies take the previous one to the peers. The shared
// memory of a block holds two pieces; io.fluxccl.collective.cuda.Reductions requests it.
constexpr uint32_t kPieceRows = 64;

// Rows of one bulk copy to a peer.
constexpr uint32_t kCopyRows = 16;

// Sends a block's rows of each part, in an order in which every rank sends to a different peer at a time.
template <typename T, class Rows>
FLUXCCL_DEVICE void scatterRows(const MappedPeers& peers, const Reduction& task, const Scratch& scratch,
                                uint32_t begin, uint32_t end, uint32_t epoch) {
  constexpr int kAtOnce = 4;
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warps = blockDim.x / kLanes;
  const uint32_t slot = task.slot(peers, 0, 1, peers.rank, epoch);
#pragma unroll 1
  for (int k = 1; k < peers.nRanks; ++k) {
    const int peer = peers.successor(k);
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

// Copies bytes from shared memory to an output; all threads of the block call it. The threads copy the bytes
// that a bulk copy can't, one element at a time.
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

// The target is all ranks, whose outputs must be mapped, or the owners.
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
    // After the barrier, bulk copies may read what this thread has stored to shared memory.
    if (forAll) {
      fenceBulkShared();
    }
    arrived = __syncthreads_and(arrived);
    if (!arrived) {
      // Does not notify peers that the outputs are complete. But bulk copies may still read this block's
      // shared memory.
      if (forAll && threadIdx.x == 0) {
        bulkWait<0>();
      }
      endEpoch(peers, epoch, false);
      return;
    }
    const uint64_t at = static_cast<uint64_t>(first) * Rows::kPayload;
    // In place, these stores overwrite input that the peers' threads have read. No flag shows that they have,
    // but the stored values are computed from what they read and sent.
    if (forAll && at < input.size) {
      const uint32_t bytes = static_cast<uint32_t>(
          min(input.size - at, static_cast<uint64_t>(last - first) * Rows::kPayload));
#pragma unroll 1
      for (int k = 1; k < peers.nRanks; ++k) {
        carryAway<T>(peers.outputs[peers.successor(k)] + task.outputOffset(peers.rank) + at, piece, bytes,
                     kCopyRows * Rows::kSize);
      }
      if (threadIdx.x == 0) {
        bulkCommit();
        // The next piece overwrites the one before this.
        bulkWaitRead<1>();
      }
      // After this barrier every thread may write there: copies by other threads are complete as well.
      __syncthreads();
    }
  }
  if (forAll && threadIdx.x == 0) {
    bulkWait<0>();
    // Orders the bulk copies before this thread's next release, which notifies the peers.
    fenceBulk();
  }
  // The outputs are complete when all ranks have written to them; an owner's own output is complete now.
  endEpoch(peers, epoch, forAll ? meet(peers, Point::LEFT, epoch) : __syncthreads_and(true));
}

}  // namespace collectives
}  // namespace fluxccl
