// SPDX-License-Identifier: Apache-2.0
// All-reduce whose result goes through a function of each row: the sum of all ranks in rank order, rounded
// once, is still in registers when the function gets it.
//
//   one shot    each rank sends its rows to all ranks, and each reduces all rows
//   two shots   row i is reduced by rank i modulo the number of ranks, which sends the sum to all ranks
//   local       rows that any other algorithm has all-reduced
//
// A block has a row at a time. Rows are sent in sentinel packets, in a slot's rows of packets for each group of a
// row. After an abort functions get rows of any content: results of an aborted call must not be used.
#pragma once

#include "reduced_row.cuh"
#include "reduction.cuh"

namespace fluxccl {
namespace collectives {

// The rows of a call as one thread handles them. A Reduction's bytes are those of all rows, its part is a row.
template <typename T, int kWords>
class FusedRows {
 public:
  using Rows = SentinelRows<sizeof(T)>;

  FLUXCCL_DEVICE FusedRows(const MappedPeers& peers, const Reduction& task, GroupSums& sums)
      : peers_(peers),
        task_(task),
        thread_(static_cast<uint32_t>(task.partBytes / sizeof(uint4))),
        row_(thread_, sums),
        input_(reinterpret_cast<const uint4*>(peers.inputs[peers.rank])) {}

  FLUXCCL_DEVICE void load(uint32_t row, uint4 (&words)[kWords]) const {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      words[k] = thread_.has(k) ? input_[static_cast<uint64_t>(row) * thread_.words + thread_.word(k)]
                                : make_uint4(0, 0, 0, 0);
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
    const bool arrived = receiveRows<Rows>(
        peers_, wanted, thread_.lane, epoch, [&](int k) { return inbound + packets(index, k); },
        [&](int) { return from; }, words);
    if (arrived) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        if (wanted >> k & 1) {
          Rows::empty(inbound + packets(index, k), thread_.lane);
        }
      }
    }
    return arrived;
  }

  // Replaces this rank's words of a row by the sum of all ranks. Returns false if the job was aborted.
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

  // Passes a reduced row to the function.
  template <class Function>
  FLUXCCL_DEVICE void finish(uint32_t row, const uint4 (&sums)[kWords], const Function& function) {
    row_.begin(row);
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      row_.words[k] = sums[k];
    }
    function(row_);
  }

 private:
  static constexpr int kPhases = 2;

  // Offset in a slot of the packets of the row that lies there at an index.
  FLUXCCL_DEVICE uint32_t packets(uint32_t index, int k) const {
    return (index * thread_.groups + thread_.group(k)) * Rows::kSize;
  }

  FLUXCCL_DEVICE uint8_t* slot(int at, int phase, int from, uint32_t epoch) const {
    return peers_.area(at, task_.area) + task_.slot(peers_, phase, kPhases, from, epoch);
  }

  const MappedPeers& peers_;
  const Reduction& task_;
  const RowThread thread_;
  ReducedRow<T, kWords> row_;
  const uint4* const input_;
};

template <typename T, int kWords, class Function>
FLUXCCL_DEVICE void fusedOneShot(const MappedPeers& peers, const Reduction& task, const Function& function) {
  __shared__ GroupSums sums;
  FusedRows<T, kWords> fused(peers, task, sums);
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
    if (rows > gridDim.x) {
      fused.load(row, words);
    }
    arrived = arrived && fused.reduce(row, epoch, words);
    fused.finish(row, words, function);
  }
  endEpoch(peers, epoch, __syncthreads_and(arrived));
}

// There are at least as many rows as ranks: so every rank receives something from every peer.
template <typename T, int kWords, class Function>
FLUXCCL_DEVICE void fusedTwoShots(const MappedPeers& peers, const Reduction& task, const Function& function) {
  __shared__ GroupSums sums;
  FusedRows<T, kWords> fused(peers, task, sums);
  const uint32_t rows = task.rows;
  const uint32_t nRanks = peers.nRanks;
  const uint32_t sets = (rows + nRanks - 1) / nRanks;
  uint4 words[kWords];
  const auto load = [&](uint32_t row) {
    if (row < rows) {
      fused.load(row, words);
    }
  };
  const uint32_t epoch =
      beginEpoch(peers, [&] { load(blockIdx.x * nRanks + peers.successor(1)); });
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
      fused.finish(row, words, function);
    }
  }
#pragma unroll 1
  for (uint32_t set = blockIdx.x; set < sets; set += gridDim.x) {
#pragma unroll 1
    for (int steps = 1; steps < peers.nRanks; ++steps) {
      const int owner = peers.predecessor(steps);
      const uint32_t row = set * nRanks + owner;
      if (row < rows) {
        arrived = arrived && fused.receive(owner, 1, set, epoch, words);
        fused.finish(row, words, function);
      }
    }
  }
  endEpoch(peers, epoch, __syncthreads_and(arrived));
}

// The function alone, of rows that are summed already.
template <typename T, int kWords, class Function>
FLUXCCL_DEVICE void finishRows(const uint4* rows, uint64_t count, uint64_t words, const Function& function) {
  __shared__ GroupSums sums;
  const RowThread thread(static_cast<uint32_t>(words));
  ReducedRow<T, kWords> row(thread, sums);
  awaitLaunchBefore();
  letNextLaunchBegin();
#pragma unroll 1
  for (uint64_t index = blockIdx.x; index < count; index += gridDim.x) {
    row.begin(static_cast<uint32_t>(index));
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      row.words[k] = thread.has(k) ? rows[index * words + thread.word(k)] : make_uint4(0, 0, 0, 0);
    }
    function(row);
  }
}

}  // namespace collectives
}  // namespace fluxccl

// Defines a kernel that reduces. EpilogueKernels.java lists all kernels. threads: the most threads of a block; two
// blocks of 512 fit on a multiprocessor.
#define FLUXCCL_FUSED_KERNEL(name, variant, label, threads, Argument, ...)                                             \
  extern "C" __global__ void __launch_bounds__(threads, 1024 / threads) fluxccl_fused_##name##_##variant##_##label(    \
      const __grid_constant__ fluxccl::collectives::MappedPeers peers,                                                 \
      const __grid_constant__ fluxccl::collectives::Reduction task, const __grid_constant__ Argument argument) {       \
    __VA_ARGS__;                                                                                                       \
  }

// Defines the kernel for rows that are summed already.
#define FLUXCCL_LOCAL_KERNEL(name, label, T, Argument, function)                                                       \
  extern "C" __global__ void __launch_bounds__(1024)                                                                   \
      fluxccl_fused_##name##_local_##label(const uint4* rows, fluxccl::uint64_t count, fluxccl::uint64_t words,        \
                                           const __grid_constant__ Argument argument) {                                \
    fluxccl::collectives::finishRows<T, 4>(rows, count, words, function);                                              \
  }

#define FLUXCCL_FUNCTION_KERNELS(name, label, T, Function)                                        \
  FLUXCCL_FUSED_KERNEL(name, row_one, label, 512, Function,                                          \
                       fluxccl::collectives::fusedOneShot<T, 2>(peers, task, argument))           \
  FLUXCCL_FUSED_KERNEL(name, row_two, label, 512, Function,                                          \
                       fluxccl::collectives::fusedTwoShots<T, 2>(peers, task, argument))          \
  FLUXCCL_LOCAL_KERNEL(name, label, T, Function, argument)

// Defines the kernels of a structure with a function of the row, for all types of elements.
#define FLUXCCL_FUSED_KERNELS(name, Function)                                        \
  FLUXCCL_FUNCTION_KERNELS(name, half, fluxccl::collectives::Half, Function)         \
  FLUXCCL_FUNCTION_KERNELS(name, bfloat16, fluxccl::collectives::Bfloat16, Function) \
  FLUXCCL_FUNCTION_KERNELS(name, float, float, Function)
