// SPDX-License-Identifier: Apache-2.0
// Two shots of packets: each rank sends to each peer the peer's part of its input, reduces its own part, and
// sends the result to all ranks or to the root, or keeps it.
//
//   area    [2 sets][2 phases][nRanks] slots of slotBytes: a rank's input for this part; its reduced part
//
// Shorter or empty parts are sent in as many rows as the others, so that every rank receives data from every
// peer.
#pragma once

#include "reduction.cuh"

namespace fluxccl {
namespace collectives {

// Number of rows of a warp that are in flight at once, if they belong to several parts.
constexpr int kRowsAtOnce = 4;

enum Shot { kScatter, kGather, kShots };

// The rows of all peers' parts, in this order: the first row of each peer, the second row of each peer, and
// so on.
struct PeerRows {
  uint32_t others;
  uint32_t count;

  FLUXCCL_DEVICE PeerRows(const MappedPeers& peers, uint32_t rowsOfPart)
      : others(peers.nRanks - 1), count(rowsOfPart * (peers.nRanks - 1)) {}

  FLUXCCL_DEVICE uint32_t row(uint32_t i) const { return i / others; }
  FLUXCCL_DEVICE int peer(const MappedPeers& peers, uint32_t i) const {
    return peers.successor(1 + i % others);
  }
};

// Begins the launch, and sends every peer its part of the input. Returns the epoch.
template <typename T, class Rows>
FLUXCCL_DEVICE uint32_t scatterParts(const MappedPeers& peers, const Reduction& task, uint32_t rows,
                                     uint32_t lane, uint32_t warp, uint32_t warps) {
  const PeerRows all(peers, rows);
  typename Rows::Word words[kRowsAtOnce];
  const auto load = [&](uint32_t first) {
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const uint32_t at = first + i * warps;
      if (at < all.count) {
        words[i] = task.inputPart<T>(peers, all.peer(peers, at)).template load<Rows>(all.row(at), lane);
      }
    }
  };
  const uint32_t epoch = beginEpoch(peers, [&] { load(warp); });
  const uint32_t slot = task.slot(peers, kScatter, kShots, peers.rank, epoch);
  for (uint32_t first = warp; first < all.count; first += kRowsAtOnce * warps) {
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const uint32_t at = first + i * warps;
      if (at < all.count) {
        uint8_t* area = peers.area(all.peer(peers, at), task.area);
        Rows::send(area + (slot + all.row(at) * Rows::kSize), lane, words[i], epoch);
      }
    }
    load(first + kRowsAtOnce * warps);
  }
  return epoch;
}

// Receives every peer's reduced part into the output. Returns false if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool gatherParts(const MappedPeers& peers, const Reduction& task, uint32_t rows,
                                uint32_t lane, uint32_t warp, uint32_t warps, uint32_t epoch) {
  const PeerRows all(peers, rows);
  uint8_t* area = peers.area(peers.rank, task.area) + task.slot(peers, kGather, kShots, 0, epoch);
  for (uint32_t first = warp; first < all.count; first += kRowsAtOnce * warps) {
    uint32_t offsets[kRowsAtOnce];
    uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const uint32_t at = first + i * warps;
      if (at < all.count) {
        wanted |= 1u << i;
        offsets[i] = all.peer(peers, at) * task.slotBytes + all.row(at) * Rows::kSize;
      }
    }
    typename Rows::Raw raws[kRowsAtOnce];
    if (!receiveRows<Rows>(
            peers, wanted, lane, epoch, [&](int i) { return area + offsets[i]; },
            [&](int i) { return all.peer(peers, first + i * warps); }, raws)) {
      return false;
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const uint32_t at = first + i * warps;
      if (at < all.count) {
        Rows::empty(area + offsets[i], lane);
        task.outputPart<T>(peers, all.peer(peers, at))
            .template store<Rows>(all.row(at), lane, Rows::wordOf(raws[i]));
      }
    }
  }
  return true;
}

// Sends a reduced row to the target ranks, and stores it if this rank is a target or keeps its own part.
template <typename T, class Rows>
FLUXCCL_DEVICE void handOnRow(const MappedPeers& peers, const Reduction& task, uint32_t row, uint32_t lane,
                              uint32_t epoch, const typename Rows::Word& reduced) {
  const uint32_t offset = task.slot(peers, kGather, kShots, peers.rank, epoch) + row * Rows::kSize;
#pragma unroll 4
  for (int k = 1; k < peers.nRanks; ++k) {
    const int peer = peers.successor(k);
    if (task.isTarget(peer)) {
      Rows::send(peers.area(peer, task.area) + offset, lane, reduced, epoch);
    }
  }
  if (task.target == Reduction::kOwners || task.isTarget(peers.rank)) {
    task.outputPart<T>(peers, peers.rank).template store<Rows>(row, lane, reduced);
  }
}

// Reduces this rank's part. Returns false if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool reducePart(const MappedPeers& peers, const Reduction& task, uint32_t rows, uint32_t lane,
                               uint32_t warp, uint32_t warps, uint32_t epoch) {
  uint8_t* inbound = peers.area(peers.rank, task.area) + task.slot(peers, kScatter, kShots, 0, epoch);
  const Piece<T> own = task.inputPart<T>(peers, peers.rank);
  for (uint32_t row = warp; row < rows; row += warps) {
    typename Rows::Word reduced;
    if (!reduceRow<T, Rows>(peers, task, inbound + row * Rows::kSize, lane, epoch,
                            own.template load<Rows>(row, lane), reduced)) {
      return false;
    }
    handOnRow<T, Rows>(peers, task, row, lane, epoch, reduced);
  }
  return true;
}

// Both shots with two ranks, where a row needs little computation. A warp sends all its rows of one shot
// before it waits for the first row of the next. Returns false if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangePartsOfPair(const MappedPeers& peers, const Reduction& task, uint32_t rows,
                                        uint32_t lane, uint32_t warp, uint32_t warps, uint32_t& epoch) {
  const int other = 1 - peers.rank;
  const Piece<T> theirs = task.inputPart<T>(peers, other);
  typename Rows::Word next;
  epoch = beginEpoch(peers, [&] { next = theirs.template load<Rows>(warp, lane); });
  uint8_t* outbound = peers.area(other, task.area);
  uint8_t* inbound = peers.area(peers.rank, task.area);
  const uint32_t scattered = task.slot(peers, kScatter, kShots, 0, epoch);
  const uint32_t gathered = task.slot(peers, kGather, kShots, 0, epoch);
  const uint32_t toOther = peers.rank * task.slotBytes;
  const uint32_t fromOther = other * task.slotBytes;
#pragma unroll 2
  for (uint32_t row = warp; row < rows; row += warps) {
    Rows::send(outbound + (scattered + toOther + row * Rows::kSize), lane, next, epoch);
    next = theirs.template load<Rows>(row + warps, lane);
  }
  const Piece<T> own = task.inputPart<T>(peers, peers.rank);
  const Piece<T> reduced = task.outputPart<T>(peers, peers.rank);
  const bool tells = task.isTarget(other);
  const bool hears = task.isTarget(peers.rank);
#pragma unroll 1
  for (uint32_t row = warp; row < rows; row += warps) {
    typename Rows::Word word = own.template load<Rows>(row, lane);
    if (!reduceRowOfPair<T, Rows>(peers, task, inbound + (scattered + fromOther + row * Rows::kSize), lane, epoch,
                                  word)) {
      return false;
    }
    if (tells) {
      Rows::send(outbound + (gathered + toOther + row * Rows::kSize), lane, word, epoch);
    }
    if (hears || task.target == Reduction::kOwners) {
      reduced.template store<Rows>(row, lane, word);
    }
  }
  if (hears) {
    const Piece<T> output = task.outputPart<T>(peers, other);
#pragma unroll 1
    for (uint32_t row = warp; row < rows; row += warps) {
      uint8_t* packets = inbound + (gathered + fromOther + row * Rows::kSize);
      typename Rows::Raw raw;
      if (!receiveRow<Rows>(peers.abort, other, packets, lane, epoch, raw)) {
        return false;
      }
      Rows::empty(packets, lane);
      output.template store<Rows>(row, lane, Rows::wordOf(raw));
    }
  }
  return true;
}

// Both shots with four ranks, by sentinel packets: a warp handles the row of each part that has one index, and
// waits for the rows of all peers at once. Returns false if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangePartsOfFour(const MappedPeers& peers, const Reduction& task, uint32_t rows,
                                        uint32_t lane, uint32_t warp, uint32_t warps, uint32_t& epoch) {
  constexpr int kRanks = 4;
  typename Rows::Word words[kRanks];
  const auto load = [&](uint32_t row) {
#pragma unroll
    for (int k = 1; k < kRanks; ++k) {
      words[k] = task.inputPart<T>(peers, (peers.rank + k) % kRanks).template load<Rows>(row, lane);
    }
  };
  epoch = beginEpoch(peers, [&] { load(warp); });
  const uint32_t slot = task.slot(peers, kScatter, kShots, peers.rank, epoch);
#pragma unroll 1
  for (uint32_t row = warp; row < rows; row += warps) {
#pragma unroll
    for (int k = 1; k < kRanks; ++k) {
      Rows::send(peers.area((peers.rank + k) % kRanks, task.area) + (slot + row * Rows::kSize), lane, words[k], epoch);
    }
    if (row + warps < rows) {
      load(row + warps);
    }
  }
  if (!reducePart<T, Rows>(peers, task, rows, lane, warp, warps, epoch)) {
    return false;
  }
  const uint32_t others = ((1u << kRanks) - 1) & ~(1u << peers.rank);
  uint8_t* inbound = peers.area(peers.rank, task.area) + task.slot(peers, kGather, kShots, 0, epoch);
#pragma unroll 1
  for (uint32_t row = warp; row < rows && task.isTarget(peers.rank); row += warps) {
    uint8_t* packets = inbound + row * Rows::kSize;
    typename Rows::Raw raws[kRanks];
    if (!receiveRows<Rows>(
            peers, others, lane, epoch, [&](int i) { return packets + i * task.slotBytes; }, [](int i) { return i; },
            raws)) {
      return false;
    }
#pragma unroll
    for (int i = 0; i < kRanks; ++i) {
      if (others >> i & 1) {
        Rows::empty(packets + i * task.slotBytes, lane);
        task.outputPart<T>(peers, i).template store<Rows>(row, lane, Rows::wordOf(raws[i]));
      }
    }
  }
  return true;
}

// Both shots with other ranks or packets.
template <typename T, class Rows>
FLUXCCL_DEVICE bool exchangeParts(const MappedPeers& peers, const Reduction& task, uint32_t rows, uint32_t lane,
                                  uint32_t warp, uint32_t warps, uint32_t& epoch) {
  epoch = scatterParts<T, Rows>(peers, task, rows, lane, warp, warps);
  return reducePart<T, Rows>(peers, task, rows, lane, warp, warps, epoch) &&
         (!task.isTarget(peers.rank) || gatherParts<T, Rows>(peers, task, rows, lane, warp, warps, epoch));
}

template <typename T, class Rows, bool kFour>
FLUXCCL_DEVICE void reduceTwoShots(const MappedPeers& peers, const Reduction& task) {
  uint32_t epoch;
  const uint32_t lane = threadIdx.x % kLanes;
  // Neighbouring rows go to different blocks.
  const uint32_t warp = threadIdx.x / kLanes * gridDim.x + blockIdx.x;
  const uint32_t warps = blockDim.x / kLanes * gridDim.x;
  const uint32_t rows = rowsOf<Rows>(task.partBytes);
  bool arrived;
  if constexpr (kFour) {
    arrived = exchangePartsOfFour<T, Rows>(peers, task, rows, lane, warp, warps, epoch);
  } else {
    arrived = peers.nRanks == 2 ? exchangePartsOfPair<T, Rows>(peers, task, rows, lane, warp, warps, epoch)
                                : exchangeParts<T, Rows>(peers, task, rows, lane, warp, warps, epoch);
  }
  endEpoch(peers, epoch, __syncthreads_and(arrived));
}

}  // namespace collectives
}  // namespace fluxccl
