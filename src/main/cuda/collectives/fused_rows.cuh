// SPDX-License-Identifier: Apache-2.0
// All-reduce whose result goes through an epilogue, a row at a time: the sum of all ranks in rank order, rounded
// once, is still in registers when the epilogue gets it.
//
//   one shot    each rank sends its rows to all ranks, and each reduces all rows; of a pair of ranks, a kernel of its own
//   two shots   row i is reduced by rank i modulo the number of ranks, which sends the sum to all ranks
//   local       rows that any other algorithm has all-reduced
//
// A block has a row at a time. Rows are sent in sentinel packets, in a slot's rows of packets for each group of a
// row. An epilogue has
//
//   Ahead             what it loads of a word while packets are on their way
//   load(...)         loads that
//   finish(row, ...)  gets the reduced row
//
// After an abort epilogues get rows of any content: results of an aborted call must not be used.
#pragma once

#include "reduced_row.cuh"
#include "reduction.cuh"

namespace fluxccl {
namespace collectives {

// An epilogue that is a function of the row and loads nothing in advance.
template <class Function>
struct FunctionEpilogue {
  const Function& function;

  struct Ahead {};

  FLUXCCL_DEVICE Ahead load(uint32_t row, const RowThread& thread, uint32_t word) const { return {}; }

  template <typename T, int kWords>
  FLUXCCL_DEVICE void finish(ReducedRow<T, kWords>& row, const Ahead (&ahead)[kWords]) const {
    function(row);
  }
};

// The rows of a call as one thread handles them. A Reduction's bytes are those of all rows, its part is a row.
template <typename T, int kWords, class Epilogue>
class FusedRows {
 public:
  using Rows = SentinelRows<sizeof(T)>;
  using Ahead = typename Epilogue::Ahead;

  FLUXCCL_DEVICE FusedRows(const MappedPeers& peers, const Reduction& task, const Epilogue& epilogue, GroupSums& sums)
      : peers_(peers),
        task_(task),
        epilogue_(epilogue),
        thread_(static_cast<uint32_t>(task.partBytes / sizeof(uint4))),
        row_(thread_, sums),
        input_(reinterpret_cast<const uint4*>(peers.inputs[peers.rank])) {}

  // Offset in a slot of the packets of the row that lies there at an index.
  FLUXCCL_DEVICE uint32_t packets(uint32_t index, int k) const {
    return (index * thread_.groups + thread_.group(k)) * Rows::kSize;
  }

  FLUXCCL_DEVICE uint8_t* slot(int at, int phase, int from, uint32_t epoch) const {
    return peers_.area(at, task_.area) + task_.slot(peers_, phase, kPhases, from, epoch);
  }

  FLUXCCL_DEVICE void load(uint32_t row, uint4 (&words)[kWords]) const {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      words[k] = thread_.has(k) ? input_[static_cast<uint64_t>(row) * thread_.words + thread_.word(k)]
                                : make_uint4(0, 0, 0, 0);
    }
  }

  FLUXCCL_DEVICE void loadAhead(uint32_t row, Ahead (&ahead)[kWords]) const {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread_.has(k)) {
        ahead[k] = epilogue_.load(row, thread_, thread_.word(k));
      }
    }
  }

  // Sends a row's words to the index in this rank's slot at a peer.
  FLUXCCL_DEVICE void send(int peer, int phase, uint32_t index, uint32_t epoch, const uint4 (&words)[kWords]) const {
    uint8_t* outbound = slot(peer, phase, peers_.rank, epoch);
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread_.group(k) < thread_.groups) {
        Rows::send(outbound + packets(index, k), thread_.lane, words[k], epoch);
      }
    }
  }

  FLUXCCL_DEVICE void sendToAll(int phase, uint32_t index, uint32_t epoch, const uint4 (&words)[kWords]) const {
#pragma unroll 1
    for (int steps = 1; steps < peers_.nRanks; ++steps) {
      send(peers_.successor(steps), phase, index, epoch, words);
    }
  }

  // Receives the row that a peer sent, and empties its packets. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool receive(int from, int phase, uint32_t index, uint32_t epoch, uint4 (&words)[kWords]) const {
    uint8_t* inbound = slot(peers_.rank, phase, from, epoch);
    uint32_t wanted = 0;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      wanted |= thread_.group(k) < thread_.groups ? 1u << k : 0;
    }
    const uint32_t all = wanted;
    const bool arrived =
        kWords == 1 ? receiveWord(from, inbound + packets(index, 0), epoch, words[0])
                    : receiveRows<Rows>(
                          peers_, wanted, thread_.lane, epoch, [&](int k) { return inbound + packets(index, k); },
                          [&](int) { return from; }, words);
    if (arrived) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        if (all >> k & 1) {
          Rows::empty(inbound + packets(index, k), thread_.lane);
        }
      }
    }
    return arrived;
  }

  // With two ranks: replaces this rank's words of a row by the sum of both. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool reduceOfPair(uint32_t index, uint32_t epoch, uint4 (&words)[kWords]) const {
    uint4 theirs[kWords];
    if (!receive(1 - peers_.rank, 0, index, epoch, theirs)) {
      return false;
    }
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      words[k] = addWordsOfPair<T, Rows>(peers_, words[k], theirs[k]);
    }
    return true;
  }

  // As reduceOfPair, with any number of ranks.
  FLUXCCL_DEVICE bool reduce(uint32_t index, uint32_t epoch, uint4 (&words)[kWords]) const {
    Reduction sum = task_;
    sum.op = ReduceOp::SUM;
    uint8_t* inbound = slot(peers_.rank, 0, 0, epoch);
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if (thread_.group(k) < thread_.groups) {
        uint4 reduced;
        if (!reduceRow<T, Rows>(peers_, sum, inbound + packets(index, k), thread_.lane, epoch, words[k], reduced)) {
          return false;
        }
        words[k] = reduced;
      }
    }
    return true;
  }

  // Passes a reduced row to the epilogue.
  FLUXCCL_DEVICE void finish(uint32_t row, const uint4 (&sums)[kWords], const Ahead (&ahead)[kWords]) {
    row_.begin(row);
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      row_.words[k] = sums[k];
    }
    epilogue_.finish(row_, ahead);
  }

 private:
  static constexpr int kPhases = 2;

  // As receiveRow, but each lane continues as soon as its own word has arrived. For a single word, this is faster than
  // a vote.
  FLUXCCL_DEVICE bool receiveWord(int from, const uint8_t* row, uint32_t epoch, uint4& word) const {
    if (thread_.group(0) >= thread_.groups) {
      return true;
    }
    bool arrived = false;
#pragma unroll 1
    for (int round = 0; round < kRoundsBeforeLooking && !arrived; ++round) {
      word = Rows::load(row, thread_.lane);
      arrived = Rows::hasArrived(word, thread_.lane, epoch);
    }
    return __all_sync(kAllLanes, arrived) || receiveRow<Rows>(peers_.abort, from, row, thread_.lane, epoch, word);
  }

  const MappedPeers& peers_;
  const Reduction& task_;
  const Epilogue& epilogue_;
  const RowThread thread_;
  ReducedRow<T, kWords> row_;
  const uint4* const input_;
};

template <typename T, int kWords, bool kIsPair, class Epilogue>
FLUXCCL_DEVICE void fusedOneShot(const MappedPeers& peers, const Reduction& task, const Epilogue& epilogue) {
  __shared__ GroupSums sums;
  FusedRows<T, kWords, Epilogue> fused(peers, task, epilogue, sums);
  const uint32_t rows = task.rows;
  uint4 words[kWords];
  const uint32_t epoch = beginEpoch(peers, [&] { fused.load(blockIdx.x, words); });
#pragma unroll 1
  for (uint32_t row = blockIdx.x; row < rows; row += gridDim.x) {
    fused.sendToAll(0, row, epoch, words);
    if (row + gridDim.x < rows) {
      fused.load(row + gridDim.x, words);
    }
  }
  bool arrived = true;
#pragma unroll 1
  for (uint32_t row = blockIdx.x; row < rows; row += gridDim.x) {
    typename Epilogue::Ahead ahead[kWords];
    if (rows > gridDim.x) {
      fused.load(row, words);
    }
    if (kIsPair) {
      fused.loadAhead(row, ahead);
      arrived = arrived && fused.reduceOfPair(row, epoch, words);
    } else {
      // Registers are needed for the packets of many ranks.
      arrived = arrived && fused.reduce(row, epoch, words);
      fused.loadAhead(row, ahead);
    }
    fused.finish(row, words, ahead);
  }
  endEpoch(peers, epoch, __syncthreads_and(arrived));
}

// There are at least as many rows as ranks: so every rank receives something from every peer.
template <typename T, int kWords, class Epilogue>
FLUXCCL_DEVICE void fusedTwoShots(const MappedPeers& peers, const Reduction& task, const Epilogue& epilogue) {
  __shared__ GroupSums sums;
  FusedRows<T, kWords, Epilogue> fused(peers, task, epilogue, sums);
  const uint32_t rows = task.rows;
  const uint32_t nRanks = peers.nRanks;
  const uint32_t sets = (rows + nRanks - 1) / nRanks;
  uint4 words[kWords];
  typename Epilogue::Ahead ahead[kWords];
  const auto load = [&](uint32_t row) {
    if (row < rows) {
      fused.load(row, words);
    }
  };
  const uint32_t epoch = beginEpoch(peers, [&] { load(blockIdx.x * nRanks + peers.successor(1)); });
#pragma unroll 1
  for (uint32_t set = blockIdx.x; set < sets; set += gridDim.x) {
#pragma unroll 1
    for (int steps = 1; steps < peers.nRanks; ++steps) {
      const int owner = peers.successor(steps);
      const uint32_t row = set * nRanks + owner;
      if (set != blockIdx.x || steps > 1) {
        load(row);
      }
      if (row < rows) {
        fused.send(owner, 0, set, epoch, words);
      }
    }
  }
  bool arrived = true;
#pragma unroll 1
  for (uint32_t set = blockIdx.x; set < sets; set += gridDim.x) {
    const uint32_t row = set * nRanks + peers.rank;
    if (row < rows) {
      fused.load(row, words);
      arrived = arrived && fused.reduce(set, epoch, words);
      fused.sendToAll(1, set, epoch, words);
      fused.loadAhead(row, ahead);
      fused.finish(row, words, ahead);
    }
  }
#pragma unroll 1
  for (uint32_t set = blockIdx.x; set < sets; set += gridDim.x) {
#pragma unroll 1
    for (int steps = 1; steps < peers.nRanks; ++steps) {
      const int owner = peers.predecessor(steps);
      const uint32_t row = set * nRanks + owner;
      if (row < rows) {
        fused.loadAhead(row, ahead);
        arrived = arrived && fused.receive(owner, 1, set, epoch, words);
        fused.finish(row, words, ahead);
      }
    }
  }
  endEpoch(peers, epoch, __syncthreads_and(arrived));
}

// The epilogue alone, of rows that are summed already.
template <typename T, int kWords, class Epilogue>
FLUXCCL_DEVICE void finishRows(const uint4* rows, uint64_t count, uint64_t words, const Epilogue& epilogue) {
  __shared__ GroupSums sums;
  const RowThread thread(static_cast<uint32_t>(words));
  ReducedRow<T, kWords> row(thread, sums);
  awaitLaunchBefore();
  letNextLaunchBegin();
#pragma unroll 1
  for (uint64_t index = blockIdx.x; index < count; index += gridDim.x) {
    typename Epilogue::Ahead ahead[kWords];
    row.begin(static_cast<uint32_t>(index));
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      row.words[k] = make_uint4(0, 0, 0, 0);
      if (thread.has(k)) {
        row.words[k] = rows[index * words + thread.word(k)];
        ahead[k] = epilogue.load(row.index(), thread, thread.word(k));
      }
    }
    epilogue.finish(row, ahead);
  }
}

}  // namespace collectives
}  // namespace fluxccl

// Defines a kernel. EpilogueKernels.java lists all kernels. threads: the most threads of a block; two blocks of 512 fit
// on a multiprocessor, or one of 1024.
#define FLUXCCL_FUSED_KERNEL(name, variant, label, threads, Argument, Epilogue, call) \
  extern "C" __global__ void __launch_bounds__(threads, 1024 / threads)               \
      fluxccl_fused_##name##_##variant##_##label(                                     \
          const __grid_constant__ fluxccl::collectives::MappedPeers peers,            \
          const __grid_constant__ fluxccl::collectives::Reduction task,               \
          const __grid_constant__ Argument argument) {                                \
    fluxccl::collectives::call(peers, task, Epilogue);                                \
  }

#define FLUXCCL_FUSED_KERNELS_OF(name, label, T, Argument, Epilogue)                                                     \
  FLUXCCL_FUSED_KERNEL(name, pair1, label, 512, Argument, Epilogue, fusedOneShot<T FLUXCCL_COMMA 1 FLUXCCL_COMMA true>)  \
  FLUXCCL_FUSED_KERNEL(name, wide1, label, 1024, Argument, Epilogue, fusedOneShot<T FLUXCCL_COMMA 1 FLUXCCL_COMMA true>) \
  FLUXCCL_FUSED_KERNEL(name, pair2, label, 512, Argument, Epilogue, fusedOneShot<T FLUXCCL_COMMA 2 FLUXCCL_COMMA true>)  \
  FLUXCCL_FUSED_KERNEL(name, pair4, label, 512, Argument, Epilogue, fusedOneShot<T FLUXCCL_COMMA 4 FLUXCCL_COMMA true>)  \
  FLUXCCL_FUSED_KERNEL(name, one2, label, 512, Argument, Epilogue, fusedOneShot<T FLUXCCL_COMMA 2 FLUXCCL_COMMA false>)  \
  FLUXCCL_FUSED_KERNEL(name, two2, label, 512, Argument, Epilogue, fusedTwoShots<T FLUXCCL_COMMA 2>)                     \
  extern "C" __global__ void __launch_bounds__(1024)                                                                     \
      fluxccl_fused_##name##_local4_##label(const uint4* rows, fluxccl::uint64_t count, fluxccl::uint64_t words,         \
                                            const __grid_constant__ Argument argument) {                                 \
    fluxccl::collectives::finishRows<T, 4>(rows, count, words, Epilogue);                                                \
  }
#define FLUXCCL_COMMA ,

// Defines the kernels of an epilogue, for all types of elements.
#define FLUXCCL_FUSED_KERNELS(name, Argument, Epilogue)                                        \
  FLUXCCL_FUSED_KERNELS_OF(name, half, fluxccl::collectives::Half, Argument, Epilogue)         \
  FLUXCCL_FUSED_KERNELS_OF(name, bfloat16, fluxccl::collectives::Bfloat16, Argument, Epilogue) \
  FLUXCCL_FUSED_KERNELS_OF(name, float, float, Argument, Epilogue)
