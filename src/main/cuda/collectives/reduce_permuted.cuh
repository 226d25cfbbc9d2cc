// Reduction of any size by plain stores, in steps: in step k every rank stores to the rank k ahead of it, so
// that each link carries one stream at a time, and goes on when the rank k behind has done so too.
// Without that lock-step ranks would soon crowd on one.
//
//   step k of n - 1    this rank's input for the part of rank + k, to its scratch
//   reduce             its own part out of its input and its scratch, to its output and to the next rank's
//   step k of n - 2    the reduced part to rank + 1 + k
//
// Results go straight to the peers' outputs where those are mapped; otherwise by way of their scratch,
// from which each rank copies them. What is larger than the scratch goes in slices of every part.
//
//   scratch    [nRanks] slots of slotBytes: a rank's input for this part
//              [nRanks] slots of slotBytes: a rank's reduced part; not where outputs are mapped
//
// A block has the same range of every part and the same room in every slot, in all slices, here and on all
// peers, and waits for those blocks only. One set of slots is enough, because each slice ends with a meeting.
#pragma once

#include <fluxccl/copy.cuh>

#include "reduction.cuh"
#include "scratch.cuh"

namespace fluxccl {
namespace collectives {

#if defined(FLUXCCL_CUDA)

// Reduces bytes of this rank's part, which lie at own and in the slots of all others, each slotBytes
// behind the one before, to one or two places. Null is no place.
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

// The same for any alignment of the type; threads of them call it together.
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

// A range of a block that is worth two pieces, each of which costs some microseconds; a macro, for where memory is
// smaller than a GPU's.
#if !defined(FLUXCCL_LONG_RANGE)
#define FLUXCCL_LONG_RANGE (128 << 10)
#endif

// One launch of the kernel. kSum: for sums only, whose code calls no function. A call costs registers all along,
// and there are none to spare.
template <typename T, bool kSum>
class PermutedReduction {
 public:
  FLUXCCL_DEVICE PermutedReduction(const MappedPeers& peers, const Reduction& task, const Scratch& scratch)
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
    // Slices of one length, so that the last one does not leave most blocks without work.
    const uint64_t most = scratch_.slotBytes - kGrain;
    const uint64_t slices = (task_.partBytes + most - 1) / most;
    const uint64_t slice = slices <= 1 ? task_.partBytes : roundUp((task_.partBytes + slices - 1) / slices);
    // A block that had other room in the next slice would store over what another has not read.
    const uint64_t perBlock = roundUp((slice + gridDim.x - 1) / gridDim.x);
    for (uint64_t begin = 0; begin < task_.partBytes; begin += slice) {
      choose(begin, min(slice, task_.partBytes - begin), perBlock);
      // Behind the meeting everybody's results are there, and everybody's scratch has been read.
      if (!scatterAndReduce() || !gather() || !meet(peers_, Point::LEFT, epoch_, ++slice_)) {
        endEpoch(peers_, epoch_, false);
        return;
      }
      if (scratch_.staged && task_.isTarget(peers_.rank)) {
        // The peers store there again when this rank has sent its next input, which comes behind.
        collect();
      }
    }
    // Also of the threads that were not in the meeting.
    __syncthreads();
    endEpoch(peers_, epoch_, true);
  }

 private:
  // Ranges of blocks begin at multiples of it, and so much room is left in a slot.
  static constexpr uint64_t kGrain = 512;

  static constexpr uint64_t kLongRange = FLUXCCL_LONG_RANGE;

  // Loads of a thread before its stores; with more there would be too few registers for the reduction.
  static constexpr int kCopies = 4;

  FLUXCCL_DEVICE static void copyRange(uint8_t* to, const uint8_t* from, uint64_t bytes) {
    copy<16, true, kCopies>(to, from, bytes, threadIdx.x, blockDim.x);
  }

  FLUXCCL_DEVICE static uint64_t roundUp(uint64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

  // This block's range of a slice.
  FLUXCCL_DEVICE void choose(uint64_t slice, uint64_t bytes, uint64_t perBlock) {
    const uint64_t from = min(bytes, blockIdx.x * perBlock);
    begin_ = slice + from;
    inSlot_ = from;
    length_ = min(bytes - from, perBlock);
  }

  // How much of the range a part has.
  FLUXCCL_DEVICE uint64_t lengthOf(int part) const {
    const uint64_t size = task_.sizeOf(part);
    return begin_ >= size ? 0 : min(length_, size - begin_);
  }

  // Parts that begin at no multiple of 16 bytes lie in the slots just as in the input: then whole words can
  // be copied.
  FLUXCCL_DEVICE uint8_t* scatterSlot(int at, int from) const {
    return scratch_.areas[at] + from * scratch_.slotBytes + inSlot_ + at * task_.inputStride % 16;
  }
  FLUXCCL_DEVICE uint8_t* gatherSlot(int at, int from) const {
    return scratch_.areas[at] + (peers_.nRanks + from) * scratch_.slotBytes + inSlot_;
  }

  // Steps of all slices count on.
  FLUXCCL_DEVICE uint32_t step(int k) const { return slice_ * MappedPeers::kMaxRanks + k; }

  // Sends and reduces this block's range. A long one goes in pieces, and those of every other block end half a piece
  // earlier: some blocks reduce while others have the links to themselves. Where results are handed on, the links
  // are busy meanwhile anyway.
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

  // Of all threads, for a flag that one waits for.
  FLUXCCL_DEVICE bool await(int peer, Point point, uint32_t value) const {
    return __syncthreads_and(threadIdx.x != 0 || awaitPeer(peers_, peer, point, epoch_, value));
  }

  FLUXCCL_DEVICE bool scatter() const {
#pragma unroll 1
    for (int k = 1; k < peers_.nRanks; ++k) {
      const int peer = peers_.ahead(k);
      copyRange(scatterSlot(peer, peers_.rank), peers_.inputs[peers_.rank] + peer * task_.inputStride + begin_,
                lengthOf(peer));
      __syncthreads();
      if (threadIdx.x == 0) {
        // Stands for all threads of the block, behind the barrier; pairs with reduce() of the peer.
        tellPeer(peers_, peer, Point::SENT, epoch_, piece_);
      }
      if (k < peers_.nRanks - 1 && !await(peers_.behind(k), Point::SENT, piece_)) {
        return false;
      }
    }
    return true;
  }

  // Where a rank's output gets this rank's part: null if it doesn't.
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
    const int next = task_.target >= 0 && task_.target != peers_.rank ? task_.target : peers_.ahead(1);
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
      // Step k - 1 is done; and the rank that stores to this one has done its.
      __syncthreads();
      if (threadIdx.x == 0) {
        nudgePeer(peers_, peers_.ahead(k - 1), Point::RECEIVED, epoch_, step(k));
      }
      if (!await(peers_.behind(k - 1), Point::RECEIVED, step(k))) {
        return false;
      }
      copyRange(target(peers_.ahead(k)), target(peers_.rank), lengthOf(peers_.rank));
    }
    return true;
  }

  // Takes the others' results out of this rank's scratch.
  FLUXCCL_DEVICE void collect() const {
#pragma unroll 1
    for (int k = 1; k < peers_.nRanks; ++k) {
      const int from = peers_.behind(k);
      copyRange(peers_.outputs[peers_.rank] + from * task_.partBytes + begin_, gatherSlot(peers_.rank, from),
                lengthOf(from));
    }
  }

  const MappedPeers& peers_;
  const Reduction& task_;
  const Scratch& scratch_;
  const uint32_t epoch_;
  uint32_t slice_;
  // Counts those of all slices.
  uint32_t piece_;
  // Of the block: where its range begins in each part and in each slot, and how long it is.
  uint64_t begin_;
  uint64_t inSlot_;
  uint64_t length_;
};

// Whatever the operation.
template <typename T>
FLUXCCL_DEVICE_CALL void reducePermutedBy(const MappedPeers& peers, const Reduction& task, const Scratch& scratch) {
  PermutedReduction<T, false>(peers, task, scratch).run();
}

template <typename T>
FLUXCCL_DEVICE void reducePermuted(const MappedPeers& peers, const Reduction& task, const Scratch& scratch) {
  if (task.op == ReduceOp::SUM) {
    PermutedReduction<T, true>(peers, task, scratch).run();
  } else {
    reducePermutedBy<T>(peers, task, scratch);
  }
}

// Reduces a range of this rank's part, whose inputs copy engines have put into its scratch. Waits for
// nobody.
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
