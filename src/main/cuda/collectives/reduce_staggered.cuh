// SPDX-License-Identifier: Apache-2.0
// Reduction of any size by plain stores, in steps. In step k every rank stores to rank + k, so that each link
// carries one stream at a time. It continues after rank - k has stored to it. Without this lock-step, several
// ranks would soon store to the same peer.
//
//   step k of n - 1    this rank's input for the part of rank + k, to its scratch
//   reduce             its own part out of its input and its scratch, to its output and to the next rank's
//   step k of n - 2    the reduced part to rank + 1 + k
//
// Results go directly to the peers' outputs if these are mapped. Otherwise they go through the peers'
// scratch, from which each rank copies them. Calls that are larger than the scratch are done in slices of
// every part.
//
//   scratch    [nRanks] slots of slotBytes: a rank's input for this part
//              [nRanks] slots of slotBytes: a rank's reduced part; not where outputs are mapped
//
// A block has the same range of every part and the same room in every slot, in all slices, on this rank and
// on all peers. It waits only for the peers' blocks of the same index. One set of slots is enough, because
// each slice ends with a barrier.
#pragma once

#include <fluxccl/copy.cuh>

#include "reduction.cuh"
#include "scratch.cuh"

namespace fluxccl {
namespace collectives {

#if defined(FLUXCCL_CUDA)

// Reduces a range of this rank's part and stores the result at one or two addresses; null stands for none.
// The sources are `own` and the slots of the peers, which lie slotBytes apart.
template <typename T, typename Word>
FLUXCCL_DEVICE void reduceRange(const MappedPeers& peers, ReduceOp op, const uint8_t* own, const uint8_t* slots,
                                uint64_t slotBytes, uint64_t words, uint8_t* to, uint8_t* alsoTo, uint64_t thread,
                                uint64_t threads) {
#pragma unroll 1
  for (uint64_t i = thread; i < words; i += threads) {
    const uint64_t at = i * sizeof(Word);
    const Word word = reduceLoaded<T, Word>(peers.nRanks, op, [&](int rank) {
      return *reinterpret_cast<const Word*>((rank == peers.rank ? own : slots + rank * slotBytes) + at);
    });
    if (to != nullptr) {
      *reinterpret_cast<Word*>(to + at) = word;
    }
    if (alsoTo != nullptr) {
      *reinterpret_cast<Word*>(alsoTo + at) = word;
    }
  }
}

// As reduceRange, for any addresses that the type allows; `threads` threads call it together.
template <typename T>
FLUXCCL_DEVICE void reduceBytes(const MappedPeers& peers, ReduceOp op, const uint8_t* own, const uint8_t* slots,
                                uint64_t slotBytes, uint64_t bytes, uint8_t* to, uint8_t* alsoTo, uint64_t thread,
                                uint64_t threads) {
  const uint64_t bits = reinterpret_cast<uint64_t>(own) | reinterpret_cast<uint64_t>(slots) | slotBytes |
                        reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(alsoTo);
  const uint64_t words = bits % sizeof(uint4) == 0 ? bytes / sizeof(uint4) : 0;
  reduceRange<T, uint4>(peers, op, own, slots, slotBytes, words, to, alsoTo, thread, threads);
  const uint64_t done = words * sizeof(uint4);
  reduceRange<T, T>(peers, op, own + done, slots + done, slotBytes, (bytes - done) / sizeof(T),
                    to == nullptr ? nullptr : to + done, alsoTo == nullptr ? nullptr : alsoTo + done, thread, threads);
}

// The least bytes of a block's range that are worth two pieces, each of which costs some microseconds. A
// macro, so that environments with less memory than a GPU can set it.
#if !defined(FLUXCCL_LONG_RANGE)
#define FLUXCCL_LONG_RANGE (128 << 10)
#endif

// One launch of the kernel. kSum: for sums only, whose code calls no function. A call costs registers in the
// whole kernel, and none are to spare.
template <typename T, bool kSum>
class StaggeredReduction {
 public:
  FLUXCCL_DEVICE StaggeredReduction(const MappedPeers& peers, const Reduction& task, const Scratch& scratch)
      : peers_(peers),
        task_(task),
        scratch_(scratch),
        epoch_(beginEpoch(peers)),
        slice_(0),
        piece_(0),
        begin_(0),
        inSlot_(0),
        length_(0) {}

  FLUXCCL_DEVICE void run() {
    // All slices have the same length, so that the last one does not leave most blocks without work.
    const uint64_t most = scratch_.slotBytes - kGrain;
    const uint64_t slices = (task_.partBytes + most - 1) / most;
    const uint64_t slice = slices <= 1 ? task_.partBytes : roundUp((task_.partBytes + slices - 1) / slices);
    // If a block's room in the slots changed from slice to slice, it could overwrite data that another block
    // has not read yet.
    const uint64_t perBlock = roundUp((slice + gridDim.x - 1) / gridDim.x);
    for (uint64_t begin = 0; begin < task_.partBytes; begin += slice) {
      choose(begin, min(slice, task_.partBytes - begin), perBlock);
      // After the barrier all ranks' results have arrived, and all ranks' scratch has been read.
      if (!scatterAndReduce() || !gather() || !meet(peers_, Point::LEFT, epoch_, ++slice_)) {
        endEpoch(peers_, epoch_, false);
        return;
      }
      if (scratch_.staged && task_.isTarget(peers_.rank)) {
        // The peers store there again only when this rank has sent its next input, which it does after this.
        collect();
      }
    }
    // endEpoch needs a barrier of the block, also if there was no slice.
    __syncthreads();
    endEpoch(peers_, epoch_, true);
  }

 private:
  // Ranges of blocks begin at multiples of it, and a slot has this much room to spare.
  static constexpr uint64_t kGrain = 512;

  static constexpr uint64_t kLongRange = FLUXCCL_LONG_RANGE;

  // Loads of a thread before its stores; with more there would be too few registers for the reduction.
  static constexpr int kCopies = 4;

  FLUXCCL_DEVICE static void copyRange(uint8_t* to, const uint8_t* from, uint64_t bytes) {
    copy<16, true, kCopies>(to, from, bytes, threadIdx.x, blockDim.x);
  }

  FLUXCCL_DEVICE static uint64_t roundUp(uint64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

  // Selects this block's range of a slice.
  FLUXCCL_DEVICE void choose(uint64_t slice, uint64_t bytes, uint64_t perBlock) {
    const uint64_t from = min(bytes, blockIdx.x * perBlock);
    begin_ = slice + from;
    inSlot_ = from;
    length_ = min(bytes - from, perBlock);
  }

  // Returns how many bytes of the range a part has.
  FLUXCCL_DEVICE uint64_t lengthOf(int part) const {
    const uint64_t size = task_.sizeOf(part);
    return begin_ >= size ? 0 : min(length_, size - begin_);
  }

  // A part lies in a slot with the same remainder of 16 bytes as in the input, so that whole words can be
  // copied.
  FLUXCCL_DEVICE uint8_t* scatterSlot(int at, int from) const {
    return scratch_.areas[at] + from * scratch_.slotBytes + inSlot_ + at * task_.inputStride % 16;
  }
  FLUXCCL_DEVICE uint8_t* gatherSlot(int at, int from) const {
    return scratch_.areas[at] + (peers_.nRanks + from) * scratch_.slotBytes + inSlot_;
  }

  // Returns the number of a step, counted across all slices.
  FLUXCCL_DEVICE uint32_t step(int k) const { return slice_ * MappedPeers::kMaxRanks + k; }

  // Sends and reduces this block's range. A long range is done in pieces, and every other block ends its
  // pieces half a piece earlier: some blocks reduce while the others have the links to themselves. If all
  // ranks receive results, the links are busy anyway, and the range is not split.
  FLUXCCL_DEVICE bool scatterAndReduce() {
    const uint64_t begin = begin_;
    const uint64_t inSlot = inSlot_;
    const uint64_t length = length_;
    const bool whole = length < kLongRange || task_.target == Reduction::kEverybody;
    const uint64_t size = whole ? length : roundUp(length / 2);
    uint64_t done = 0;
    uint64_t end = whole || blockIdx.x % 2 == 0 ? size : roundUp(size / 2);
    bool going = true;
    do {
      begin_ = begin + done;
      inSlot_ = inSlot + done;
      length_ = end - done;
      ++piece_;
      going = scatter() && reduce();
      done = end;
      end = min(length, end + size);
    } while (going && done < length);
    begin_ = begin;
    inSlot_ = inSlot;
    length_ = length;
    return going;
  }

  // Waits in one thread for a peer's flag, on behalf of all threads of the block.
  FLUXCCL_DEVICE bool await(int peer, Point point, uint32_t value) const {
    return __syncthreads_and(threadIdx.x != 0 || awaitPeer(peers_, peer, point, epoch_, value));
  }

  FLUXCCL_DEVICE bool scatter() const {
#pragma unroll 1
    for (int k = 1; k < peers_.nRanks; ++k) {
      const int peer = peers_.successor(k);
      copyRange(scatterSlot(peer, peers_.rank), peers_.inputs[peers_.rank] + peer * task_.inputStride + begin_,
                lengthOf(peer));
      __syncthreads();
      if (threadIdx.x == 0) {
        // Covers all threads of the block, because of the barrier. Pairs with the acquire in reduce() of the
        // peer.
        signalPeer(peers_, peer, Point::SENT, epoch_, piece_);
      }
      if (k < peers_.nRanks - 1 && !await(peers_.predecessor(k), Point::SENT, piece_)) {
        return false;
      }
    }
    return true;
  }

  // Returns the address at which a rank receives this rank's part; null if it receives none.
  FLUXCCL_DEVICE uint8_t* target(int rank) const {
    if (rank == peers_.rank) {
      return task_.target == Reduction::kOwners || task_.isTarget(rank)
                 ? peers_.outputs[rank] + task_.outputOffset(rank) + begin_
                 : nullptr;
    }
    if (!task_.isTarget(rank)) {
      return nullptr;
    }
    return scratch_.staged ? gatherSlot(rank, peers_.rank)
                           : peers_.outputs[rank] + task_.outputOffset(peers_.rank) + begin_;
  }

  FLUXCCL_DEVICE bool reduce() const {
    bool arrived = true;
    const int peer = threadIdx.x;
    if (peer < peers_.nRanks && peer != peers_.rank) {
      arrived = awaitPeer(peers_, peer, Point::SENT, epoch_, piece_);
    }
    if (!__syncthreads_and(arrived)) {
      return false;
    }
    const int next = task_.target >= 0 && task_.target != peers_.rank ? task_.target : peers_.successor(1);
    reduceBytes<T>(peers_, kSum ? ReduceOp::SUM : task_.op,
                   peers_.inputs[peers_.rank] + peers_.rank * task_.inputStride + begin_, scatterSlot(peers_.rank, 0),
                   scratch_.slotBytes, lengthOf(peers_.rank), target(peers_.rank), target(next), threadIdx.x,
                   blockDim.x);
    return true;
  }

  FLUXCCL_DEVICE bool gather() const {
    if (task_.target != Reduction::kEverybody) {
      return true;
    }
#pragma unroll 1
    for (int k = 2; k < peers_.nRanks; ++k) {
      // Waits until step k - 1 is done here and on the rank that stores to this one.
      __syncthreads();
      if (threadIdx.x == 0) {
        signalPeerRelaxed(peers_, peers_.successor(k - 1), Point::RECEIVED, epoch_, step(k));
      }
      if (!await(peers_.predecessor(k - 1), Point::RECEIVED, step(k))) {
        return false;
      }
      copyRange(target(peers_.successor(k)), target(peers_.rank), lengthOf(peers_.rank));
    }
    return true;
  }

  // Copies the peers' results from this rank's scratch to its output.
  FLUXCCL_DEVICE void collect() const {
#pragma unroll 1
    for (int k = 1; k < peers_.nRanks; ++k) {
      const int from = peers_.predecessor(k);
      copyRange(peers_.outputs[peers_.rank] + from * task_.partBytes + begin_, gatherSlot(peers_.rank, from),
                lengthOf(from));
    }
  }

  const MappedPeers& peers_;
  const Reduction& task_;
  const Scratch& scratch_;
  const uint32_t epoch_;
  uint32_t slice_;
  // Number of the piece, counted across all slices.
  uint32_t piece_;
  // This block's range: where it begins in each part and in each slot, and its length.
  uint64_t begin_;
  uint64_t inSlot_;
  uint64_t length_;
};

// For all other operations.
template <typename T>
FLUXCCL_DEVICE_CALL void reduceStaggeredBy(const MappedPeers& peers, const Reduction& task, const Scratch& scratch) {
  StaggeredReduction<T, false>(peers, task, scratch).run();
}

template <typename T>
FLUXCCL_DEVICE void reduceStaggered(const MappedPeers& peers, const Reduction& task, const Scratch& scratch) {
  if (task.op == ReduceOp::SUM) {
    StaggeredReduction<T, true>(peers, task, scratch).run();
  } else {
    reduceStaggeredBy<T>(peers, task, scratch);
  }
}

// Reduces a range of this rank's part; copy engines have put the inputs into its scratch before. Waits for no
// peer.
template <typename T>
FLUXCCL_DEVICE void reduceSlice(const MappedPeers& peers, const Reduction& task, const Scratch& scratch, uint64_t begin,
                                uint64_t bytes) {
  const uint64_t size = task.sizeOf(peers.rank);
  if (begin < size) {
    reduceBytes<T>(peers, task.op, peers.inputs[peers.rank] + peers.rank * task.inputStride + begin,
                   scratch.areas[peers.rank] + begin, scratch.slotBytes, min(bytes, size - begin),
                   peers.outputs[peers.rank] + task.outputOffset(peers.rank) + begin, nullptr,
                   blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x,
                   gridDim.x * static_cast<uint64_t>(blockDim.x));
  }
}

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
