// SPDX-License-Identifier: Apache-2.0
// One shot, for the least latency: each rank sends its whole input to all ranks, or to the root, and each
// receiver reduces all inputs.
//
//   area    [2 sets][nRanks] slots of slotBytes: a rank's input
#pragma once

#include "reduction.cuh"

namespace fluxccl {
namespace collectives {

// With two ranks: one warp handles a whole row, without a barrier, and sends all its rows before it waits for
// the first one. Returns false if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangeRowsOfPair(const MappedPeers& peers, const Reduction& task, uint32_t& epoch) {
  const uint32_t lane = threadIdx.x % kLanes;
  // Neighbouring rows go to different blocks.
  const uint32_t warp = threadIdx.x / kLanes * gridDim.x + blockIdx.x;
  const uint32_t warps = blockDim.x / kLanes * gridDim.x;
  const uint32_t rows = rowsOf<Rows>(task.bytes);
  const int other = 1 - peers.rank;
  const Piece<T> input{peers.inputs[peers.rank], task.bytes};
  typename Rows::Word next;
  epoch = beginEpoch(peers, [&] { next = input.template load<Rows>(warp, lane); });
  if (task.isTarget(other)) {
    uint8_t* outbound = peers.area(other, task.area) + task.slot(peers, 0, 1, peers.rank, epoch);
#pragma unroll 1
    for (uint32_t row = warp; row < rows; row += warps) {
      Rows::send(outbound + row * Rows::kSize, lane, next, epoch);
      next = input.template load<Rows>(row + warps, lane);
    }
  }
  if (task.isTarget(peers.rank)) {
    const Piece<T> output{peers.outputs[peers.rank], task.bytes};
    uint8_t* inbound = peers.area(peers.rank, task.area) + task.slot(peers, 0, 1, other, epoch);
#pragma unroll 1
    for (uint32_t row = warp; row < rows; row += warps) {
      typename Rows::Word word = input.template load<Rows>(row, lane);
      if (!reduceRowOfPair<T, Rows>(peers, task, inbound + row * Rows::kSize, lane, epoch, word)) {
        return false;
      }
      output.template store<Rows>(row, lane, word);
    }
  }
  return true;
}

// With four ranks, by sentinel packets: a warp sends a row to all peers, and waits for the rows of all peers at
// once. Returns false if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangeRowsOfFour(const MappedPeers& peers, const Reduction& task, uint32_t& epoch) {
  constexpr int kRanks = 4;
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warp = threadIdx.x / kLanes * gridDim.x + blockIdx.x;
  const uint32_t warps = blockDim.x / kLanes * gridDim.x;
  const uint32_t rows = rowsOf<Rows>(task.bytes);
  const Piece<T> input{peers.inputs[peers.rank], task.bytes};
  typename Rows::Word next;
  epoch = beginEpoch(peers, [&] { next = input.template load<Rows>(warp, lane); });
  const uint32_t slot = task.slot(peers, 0, 1, peers.rank, epoch);
#pragma unroll 1
  for (uint32_t row = warp; row < rows; row += warps) {
#pragma unroll
    for (int k = 1; k < kRanks; ++k) {
      const int peer = (peers.rank + k) % kRanks;
      if (task.isTarget(peer)) {
        Rows::send(peers.area(peer, task.area) + (slot + row * Rows::kSize), lane, next, epoch);
      }
    }
    next = input.template load<Rows>(row + warps, lane);
  }
  if (!task.isTarget(peers.rank)) {
    return true;
  }
  uint8_t* inbound = peers.area(peers.rank, task.area) + task.slot(peers, 0, 1, 0, epoch);
  const Piece<T> output{peers.outputs[peers.rank], task.bytes};
#pragma unroll 1
  for (uint32_t row = warp; row < rows; row += warps) {
    // As the peers see it: so all ranks get the same bits.
    typename Rows::Word word = Rows::asSent(input.template load<Rows>(row, lane));
    if (!reduceRow<T, Rows>(peers, task, inbound + row * Rows::kSize, lane, epoch, word, word)) {
      return false;
    }
    output.template store<Rows>(row, lane, word);
  }
  return true;
}

// With other ranks or packets: a block handles some rows at once. Each row has one warp for each rank, which
// sends to that rank and receives from it. The first of these warps reduces. Returns false if the job was
// aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangeRows(const MappedPeers& peers, const Reduction& task, uint32_t& epoch) {
  using Word = typename Rows::Word;
  constexpr int kMaxWarps = 16;
  __shared__ Word words[kMaxWarps][kLanes];
  const int warp = threadIdx.x / kLanes;
  const uint32_t lane = threadIdx.x % kLanes;
  const int group = warp / peers.nRanks;
  const int peer = warp - group * peers.nRanks;
  const uint32_t rowsAtOnce = blockDim.x / kLanes / peers.nRanks * gridDim.x;
  const bool receives = task.isTarget(peers.rank);
  const Piece<T> input{peers.inputs[peers.rank], task.bytes};
  const Piece<T> output{peers.outputs[peers.rank], task.bytes};
  const uint32_t rows = rowsOf<Rows>(task.bytes);
  Word next;
  epoch = beginEpoch(peers, [&] { next = input.template load<Rows>(blockIdx.x + group * gridDim.x, lane); });
  uint8_t* outbound = peers.area(peer, task.area) + task.slot(peers, 0, 1, peers.rank, epoch);
  uint8_t* inbound = peers.area(peers.rank, task.area) + task.slot(peers, 0, 1, peer, epoch);
  for (uint32_t first = blockIdx.x; first < rows; first += rowsAtOnce) {
    const uint32_t row = first + group * gridDim.x;
    bool arrived = true;
    if (row < rows) {
      Word word = next;
      next = input.template load<Rows>(row + rowsAtOnce, lane);
      if (peer != peers.rank) {
        if (task.isTarget(peer)) {
          Rows::send(outbound + row * Rows::kSize, lane, word, epoch);
        }
        if (receives) {
          uint8_t* theirs = inbound + row * Rows::kSize;
          typename Rows::Raw raw;
          arrived = receiveRow<Rows>(peers.abort, peer, theirs, lane, epoch, raw);
          word = Rows::wordOf(raw);
          Rows::empty(theirs, lane);
        }
      } else {
        word = Rows::asSent(word);
      }
      words[warp][lane] = word;
    }
    if (!__syncthreads_and(arrived)) {
      return false;
    }
    if (receives && peer == 0 && row < rows) {
      output.template store<Rows>(row, lane, reduceLoaded<T, Word>(peers.nRanks, task.op, [&](int rank) {
                                    return words[warp + rank][lane];
                                  }));
    }
    // All words have been read and may now be overwritten.
    __syncthreads();
  }
  return true;
}

template <typename T, class Rows, bool kFour>
FLUXCCL_DEVICE void reduceOneShot(const MappedPeers& peers, const Reduction& task) {
  uint32_t epoch;
  bool exchanged;
  if constexpr (kFour) {
    exchanged = exchangeRowsOfFour<T, Rows>(peers, task, epoch);
  } else {
    exchanged = peers.nRanks == 2 ? exchangeRowsOfPair<T, Rows>(peers, task, epoch)
                                  : exchangeRows<T, Rows>(peers, task, epoch);
  }
  // In a reduce, the root receives data from all ranks and the others receive none. So all ranks pass a
  // barrier.
  endEpoch(peers, epoch,
           __syncthreads_and(exchanged) &&
               (task.target == Reduction::kEverybody || meet(peers, Point::ENTERED, epoch)));
}

}  // namespace collectives
}  // namespace fluxccl
