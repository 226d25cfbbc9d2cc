// SPDX-License-Identifier: Apache-2.0
// The argument of kernels that reduce, and functions that these kernels share.
//
// The inputs are cut into one part for each rank, which that rank reduces in rank order. So all ranks get the
// same bits.
#pragma once

#include "accumulator.cuh"
#include "mapped_peers.cuh"
#include "packet_rows.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.Reduction.
struct Reduction {
  // Values of target that are not a rank.
  static constexpr int32_t kEverybody = -1;
  static constexpr int32_t kOwners = -2;

  // Bytes of an input.
  uint64_t bytes;
  // Bytes of a part. Part r begins at r times this; the last parts may be shorter or empty.
  uint64_t partBytes;
  // Offset of the packets' area in the states, and the bytes of one rank's slot in it.
  uint64_t area;
  uint32_t slotBytes;
  ReduceOp op;
  // The ranks whose outputs receive the result: all ranks, with each part at its place; the owners, each with
  // its own part at the start; or one rank, with each part at its place.
  int32_t target;
  // Number of parts if the input is a matrix whose rows are the parts, otherwise 0.
  uint32_t rows;
  // Distance from one part of the input to the next: the bytes of a part, or more if the parts are pieces of
  // longer ones.
  uint64_t inputStride;

#if defined(FLUXCCL_CUDA)
  FLUXCCL_DEVICE uint64_t sizeOf(int part) const {
    const uint64_t begin = part * partBytes;
    return begin >= bytes ? 0 : min(partBytes, bytes - begin);
  }

  // Returns the offset of a part in an output.
  FLUXCCL_DEVICE uint64_t outputOffset(int part) const {
    return target == kOwners ? 0 : part * partBytes;
  }

  FLUXCCL_DEVICE bool isTarget(int rank) const { return target == kEverybody || target == rank; }

  template <typename T>
  FLUXCCL_DEVICE Piece<T> inputPart(const MappedPeers& peers, int part) const {
    return Piece<T>{peers.inputs[peers.rank] + part * inputStride, sizeOf(part)};
  }

  template <typename T>
  FLUXCCL_DEVICE Piece<T> outputPart(const MappedPeers& peers, int part) const {
    return Piece<T>{peers.outputs[peers.rank] + outputOffset(part), sizeOf(part)};
  }

  // Returns the offset of the slot of rank `from` in the area. phase counts from 0 to phases - 1. An area has
  // less than 4 GiB, so 32 bits are enough; that saves a register.
  FLUXCCL_DEVICE uint32_t slot(const MappedPeers& peers, int phase, int phases, int from,
                               uint32_t epoch) const {
    return (((epoch & 1) * phases + phase) * peers.nRanks + from) * slotBytes;
  }
#endif
};
FLUXCCL_ASSERT_OFFSET(Reduction, op, 28);
FLUXCCL_ASSERT_SIZE(Reduction, 48);

#if defined(FLUXCCL_CUDA)

template <class Rows>
FLUXCCL_DEVICE uint32_t rowsOf(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + Rows::kPayload - 1) / Rows::kPayload);
}

// Receives a row from every peer, empties these rows, and reduces them with this rank's own word. Parameter
// rows: the address of rank 0's row; the rows of the next ranks follow, one slot apart. Returns false if the
// job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool reduceRow(const MappedPeers& peers, const Reduction& task, uint8_t* rows, uint32_t lane,
                              uint32_t epoch, const typename Rows::Word& own, typename Rows::Word& reduced) {
  using Word = typename Rows::Word;
  const auto rowOf = [&](int from) { return rows + from * task.slotBytes; };
  constexpr int kSources = Rows::kSources;
  Accumulator<T, Word> result;
#pragma unroll 1
  for (int first = 0; first < peers.nRanks; first += kSources) {
    uint32_t wanted = (1u << min(kSources, peers.nRanks - first)) - 1;
    if (peers.rank >= first && peers.rank < first + kSources) {
      wanted &= ~(1u << (peers.rank - first));
    }
    typename Rows::Raw raws[kSources];
    if (!receiveRows<Rows>(
            peers, wanted, lane, epoch, [&](int i) { return rowOf(first + i); },
            [&](int i) { return first + i; }, raws)) {
      return false;
    }
    Word words[kSources];
#pragma unroll
    for (int i = 0; i < kSources; ++i) {
      words[i] = Rows::wordOf(raws[i]);
      if (first + i == peers.rank) {
        words[i] = own;
      } else if (first + i < peers.nRanks) {
        Rows::empty(rowOf(first + i), lane);
      }
    }
    combineBatch(result, words, first, peers.nRanks, task.op);
  }
  reduced = Rows::asSent(result.finish(task.op, peers.nRanks));
  return true;
}

// With two ranks: returns the sum of their words, as its receivers will see it.
template <typename T, class Rows>
FLUXCCL_DEVICE typename Rows::Word addWordsOfPair(const MappedPeers& peers, const typename Rows::Word& own,
                                                  const typename Rows::Word& theirs) {
  if (Element<T>::kAddsPairs) {
    // There is one NaN, which is no sentinel, so the order makes no difference.
    return addWords<T>(own, theirs);
  }
  const bool isFirst = peers.rank == 0;
  return Rows::asSent(addWords<T>(isFirst ? own : theirs, isFirst ? theirs : own));
}

// With two ranks: receives a row from the other rank, empties it, and reduces it with this rank's own word,
// which the result replaces. Returns false if the job was aborted.
template <typename T, class Rows>
FLUXCCL_DEVICE bool reduceRowOfPair(const MappedPeers& peers, const Reduction& task, uint8_t* row, uint32_t lane,
                                    uint32_t epoch, typename Rows::Word& word) {
  const int other = 1 - peers.rank;
  typename Rows::Raw raw;
  if (!receiveRow<Rows>(peers.abort, other, row, lane, epoch, raw)) {
    return false;
  }
  Rows::empty(row, lane);
  const typename Rows::Word theirs = Rows::wordOf(raw);
  word = task.op == ReduceOp::SUM ? addWordsOfPair<T, Rows>(peers, word, theirs)
                                  : Rows::asSent(reduceAnyPair<T>(other == 0 ? theirs : word,
                                                                  other == 0 ? word : theirs, task.op));
  return true;
}

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
