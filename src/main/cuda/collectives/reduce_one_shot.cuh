// One shot, for the least latency: everybody sends its whole input to everybody, or to the root, and reduces
// what comes.
//
//   area    [2 sets][nRanks] slots of slotBytes: a rank's input
#pragma once

#include "reduction.cuh"

namespace fluxccl {
namespace collectives {

// Between two ranks a warp does all of a row, without a barrier, and sends all of its rows before it waits for
// the first. False if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangeRowsOfPair(const MappedPeers& peers, const Reduction& task, uint32_t epoch) {
  const uint32_t lane = threadIdx.x % kLanes;
  // Neighbouring rows go to different blocks.
  const uint32_t warp = threadIdx.x / kLanes * gridDim.x + blockIdx.x;
  const uint32_t warps = blockDim.x / kLanes * gridDim.x;
  const uint32_t rows = rowsOf<Rows>(task.bytes);
  const int other = 1 - peers.rank;
  const Piece<T> input{peers.inputs[peers.rank], task.bytes};
  if (task.isTarget(other)) {
    uint8_t* outbound = peers.area(other, task.area) + task.slot(peers, 0, 1, peers.rank, epoch);
#pragma unroll 1
    for (uint32_t row = warp; row < rows; row += warps) {
      Rows::send(outbound + row * Rows::kSize, lane, input.template load<Rows>(row, lane), epoch);
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

// Of more ranks a block takes some rows at once. Each has a warp for each rank, which sends to that rank and
// receives from it; the first of them reduces. False if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangeRows(const MappedPeers& peers, const Reduction& task, uint32_t epoch) {
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
  uint8_t* outbound = peers.area(peer, task.area) + task.slot(peers, 0, 1, peers.rank, epoch);
  uint8_t* inbound = peers.area(peers.rank, task.area) + task.slot(peers, 0, 1, peer, epoch);
  for (uint32_t first = blockIdx.x; first < rows; first += rowsAtOnce) {
    const uint32_t row = first + group * gridDim.x;
    bool arrived = true;
    if (row < rows) {
      Word word = input.template load<Rows>(row, lane);
      if (peer != peers.rank) {
        if (task.isTarget(peer)) {
          Rows::send(outbound + row * Rows::kSize, lane, word, epoch);
        }
        if (receives) {
          uint8_t* theirs = inbound + row * Rows::kSize;
          typename Rows::Raw raw;
          arrived = receiveRow<Rows>(peers, peer, theirs, lane, epoch, raw);
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
    // The words have been read, and may be overwritten.
    __syncthreads();
  }
  return true;
}

template <typename T, class Rows>
FLUXCCL_DEVICE void reduceOneShot(const MappedPeers& peers, const Reduction& task) {
  const uint32_t epoch = beginEpoch(peers);
  const bool exchanged =
      peers.nRanks == 2 ? exchangeRowsOfPair<T, Rows>(peers, task, epoch) : exchangeRows<T, Rows>(peers, task, epoch);
  // A root hears of everybody, the others only of the root's having begun: so all of them meet.
  endEpoch(peers, epoch,
           __syncthreads_and(exchanged) &&
               (task.target == Reduction::kEverybody || meet(peers, Point::ENTERED, epoch)));
}

}  // namespace collectives
}  // namespace fluxccl
