// SPDX-License-Identifier: Apache-2.0
// Combine: returns to each token the sum of the results of the ranks with its experts. Every rank sends one
// bfloat16 vector for each token that it received; the token's rank adds them in rank order, in single
// precision, and rounds once. So the result has the same bits in every run.
//
// The plan of dispatch lists the tokens that arrive, so there are no headers.
#pragma once

#include "element.cuh"
#include "experts.cuh"

namespace fluxccl {
namespace collectives {

// io.fluxccl.collective.cuda.Routes fills it in.
struct CombineTask {
  ExpertTask experts;
  // For each received token and each of its topK experts, the row of the input with the expert's result. The
  // kernel then adds these rows, each times its weight, in their order. Null: the input has one row for each
  // received token, with the sum made by the user.
  const int32_t* inputRows;
  int32_t nInputRows;
  uint32_t padding;
};
FLUXCCL_ASSERT_SIZE(CombineTask, 168);

#if defined(FLUXCCL_CUDA)

// Eight values of bfloat16, as floats.
struct EightSums {
  float values[8] = {};

  // Multiplication and addition are rounded one after the other, as in Java.
  FLUXCCL_DEVICE void add(const uint4& word, float weight) {
    const uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = __fadd_rn(values[2 * i], __fmul_rn(weight, low(pairs[i])));
      values[2 * i + 1] = __fadd_rn(values[2 * i + 1], __fmul_rn(weight, high(pairs[i])));
    }
  }
  FLUXCCL_DEVICE void add(const uint4& word) { add(word, 1.0f); }

  FLUXCCL_DEVICE uint4 rounded() const {
    return make_uint4(pair(0), pair(1), pair(2), pair(3));
  }

 private:
  static FLUXCCL_DEVICE float low(uint32_t pair) { return __uint_as_float(pair << 16); }
  static FLUXCCL_DEVICE float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
  FLUXCCL_DEVICE uint32_t pair(int i) const {
    return static_cast<uint32_t>(Element<Bfloat16>::narrow(values[2 * i + 1]).bits) << 16 |
           Element<Bfloat16>::narrow(values[2 * i]).bits;
  }
};

template <bool kWeighted>
class Combine {
 public:
  FLUXCCL_DEVICE Combine(const MappedPeers& peers, const CombineTask& task)
      : peers_(peers), task_(task.experts), combine_(task), words_(task.experts.words()) {}

  FLUXCCL_DEVICE void run() {
    uint32_t faulty;
    uint32_t epoch = beginEpoch(peers_, [&] {
      faulty = task_.area.faultyEpoch(peers_);
      shared().load(task_.plan, words_ * peers_.nRanks);
    });
    first_ = epoch;
    bool going = !RouteArea::hasFailed(faulty, first_);
    __syncthreads();
    const uint32_t tokens = static_cast<uint32_t>(task_.tokens);
    for (uint32_t begin = 0; going && begin < tokens; begin += task_.sliceTokens) {
      if (begin > 0) {
        epoch = nextEpoch(epoch);
      }
      const uint32_t count = min(task_.sliceTokens, tokens - begin);
      beginSlice(peers_, epoch);
      send(begin, count, epoch);
      going = endSlice(peers_, epoch, receive(begin, count, epoch));
    }
    endEpoch(peers_, epoch, __syncthreads_and(going));
  }

 private:
  static constexpr int kAtOnce = 4;

  static FLUXCCL_DEVICE RoutePlan& shared() {
    __shared__ RoutePlan memory;
    return memory;
  }

  FLUXCCL_DEVICE void send(uint32_t begin, uint32_t count, uint32_t epoch) const {
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows.by; i += warpsOfLaunch()) {
      const uint32_t token = begin + task_.rows.quotient(i);
      for (int k = 1; k < peers_.nRanks; ++k) {
        const int peer = peers_.successor(k);
        if (RoutePlan::has(shared().received, words_, peer, token)) {
          Ll128Rows::send(task_.area.row(peers_, peer, peers_.rank, epoch, i), laneId(),
                          load(shared().place(words_, peer, token), task_.rows.remainder(i)), epoch);
        }
      }
    }
  }

  FLUXCCL_DEVICE bool receive(uint32_t begin, uint32_t count, uint32_t epoch) const {
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows.by; i += warpsOfLaunch()) {
      EightSums sums;
      if (!addRow(begin + task_.rows.quotient(i), i, epoch, sums)) {
        return false;
      }
      const uint32_t at = task_.rows.remainder(i) * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
      uint8_t* values = peers_.outputs[peers_.rank] + uint64_t{begin + task_.rows.quotient(i)} * task_.hiddenBytes;
      const uint4 word = sums.rounded();
      if (at < task_.hiddenBytes) {
        *reinterpret_cast<uint2*>(values + at) = make_uint2(word.x, word.y);
      }
      if (Ll128Rows::length(laneId()) == 16 && at + 8 < task_.hiddenBytes) {
        *reinterpret_cast<uint2*>(values + at + 8) = make_uint2(word.z, word.w);
      }
    }
    return true;
  }

  // Adds a row of all ranks that have a result for a token. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool addRow(uint32_t token, uint32_t row, uint32_t epoch, EightSums& sums) const {
    const RoutePlan& plan = shared();
#pragma unroll 1
    for (int first = 0; first < peers_.nRanks; first += kAtOnce) {
      uint32_t wanted = 0;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int from = first + i;
        wanted |= (from < peers_.nRanks && RoutePlan::has(plan.sent, words_, from, token) ? 1u : 0u) << i;
      }
      const uint32_t own = peers_.rank >= first && peers_.rank < first + kAtOnce ? 1u << (peers_.rank - first) : 0;
      // In flight while the rows of the others arrive.
      const uint4 mine =
          (wanted & own) != 0 ? load(plan.place(words_, peers_.rank, token), task_.rows.remainder(row)) : uint4{};
      uint4 raws[kAtOnce];
      if (!receiveRows<Ll128Rows>(
              peers_, wanted & ~own, laneId(), epoch,
              [&](int i) { return task_.area.row(peers_, peers_.rank, first + i, epoch, row); },
              [&](int i) { return first + i; }, raws)) {
        return false;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (wanted >> i & 1) {
          sums.add(own >> i & 1 ? mine : raws[i]);
        }
      }
    }
    return true;
  }

  // Returns this lane's bytes of a row of this rank's result for a received token.
  FLUXCCL_DEVICE uint4 load(uint32_t place, uint32_t row) const {
    const uint32_t at = row * Ll128Rows::kPayload + Ll128Rows::offset(laneId());
    const uint32_t length = Ll128Rows::length(laneId());
    if (!kWeighted) {
      return place < static_cast<uint32_t>(combine_.nInputRows) ? loadInput(place, at, length) : make_uint4(0, 0, 0, 0);
    }
    EightSums sums;
#pragma unroll 1
    for (int32_t k = 0; k < task_.topK; ++k) {
      const uint64_t pair = uint64_t{place} * task_.topK + k;
      const int32_t from = combine_.inputRows[pair];
      if (task_.receivedIds[pair] < 0 || from == -1) {
        continue;
      }
      if (from < 0 || from >= combine_.nInputRows) {
        task_.area.report(peers_, first_, Fault::ROW, peers_.rank, static_cast<uint32_t>(from));
        continue;
      }
      sums.add(loadInput(from, at, length), __uint_as_float(task_.receivedWeights[pair]));
    }
    return sums.rounded();
  }

  FLUXCCL_DEVICE uint4 loadInput(uint32_t row, uint32_t at, uint32_t length) const {
    return loadValues(peers_.inputs[peers_.rank] + uint64_t{row} * task_.hiddenBytes, at, length, task_.hiddenBytes);
  }

  const MappedPeers& peers_;
  const ExpertTask& task_;
  const CombineTask& combine_;
  const uint32_t words_;
  uint32_t first_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
