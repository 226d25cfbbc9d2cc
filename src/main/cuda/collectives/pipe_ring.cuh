// SPDX-License-Identifier: Apache-2.0
// All-reduce around a ring. Twin of HostSchedule.Ring, which describes how it works.
#pragma once

#include "pipe.cuh"
#include "pipe_reduction.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

// Written by GpuAlgorithms.
struct ReductionPlan {
  Pipe* pipes;
  Layout layout;
  int32_t rank;
  int32_t nRanks;
  const uint8_t* input;
  uint8_t* output;
  uint64_t size;
  // Bytes of a part.
  uint64_t stride;
  ReduceOp op;

  FLUXCCL_DEVICE uint64_t begin(int part) const { return min(size, stride * part); }
  FLUXCCL_DEVICE uint64_t bytes(int part) const { return min(stride, size - begin(part)); }
};
FLUXCCL_ASSERT_OFFSET(ReductionPlan, input, 24);
FLUXCCL_ASSERT_OFFSET(ReductionPlan, op, 56);
FLUXCCL_ASSERT_SIZE(ReductionPlan, 64);

template <typename T>
class RingLane {
 public:
  FLUXCCL_DEVICE RingLane(const ReductionPlan& plan, Slots& slots)
      : plan_(plan),
        lane_(plan.pipes, plan.rank, plan.nRanks, slots),
        next_(lane_.peer(1)),
        previous_(lane_.peer(plan.nRanks - 1)),
        rounds_(2 * (plan.nRanks - 1)),
        shareBegin_(plan.layout.begin(plan.stride)),
        shareEnd_(shareBegin_ + plan.layout.length(plan.stride)),
        piece_(plan.layout.ringPiece(shareEnd_ - shareBegin_)) {}

  FLUXCCL_DEVICE void run() {
    const int64_t sweep = static_cast<int64_t>(piece_) * kRingPieces;
    const int64_t sweeps = (static_cast<int64_t>(shareEnd_ - shareBegin_) + sweep - 1) / sweep;
    const int64_t all = sweeps * rounds_ * kRingPieces;
    for (int64_t number = 0; number < all + kRingPieces; ++number) {
      if (roundOf(number) == 0 && number < all && !begin(number)) {
        return;
      }
      if (number >= kRingPieces && !receive(number - kRingPieces)) {
        return;
      }
    }
  }

 private:
  FLUXCCL_DEVICE int roundOf(int64_t number) const {
    return static_cast<int>(number / kRingPieces % rounds_);
  }

  FLUXCCL_DEVICE uint64_t offset(int64_t number) const {
    const int64_t sweep = number / kRingPieces / rounds_;
    return shareBegin_ + (sweep * kRingPieces + number % kRingPieces) * piece_;
  }

  FLUXCCL_DEVICE uint64_t bytesOf(int64_t number, int part) const {
    const uint64_t from = offset(number);
    const uint64_t end = min(shareEnd_, plan_.bytes(part));
    return from < end ? min(piece_, end - from) : 0;
  }

  FLUXCCL_DEVICE bool claim() {
    return lane_.claim([&](int peer) { return peer == next_; });
  }

  FLUXCCL_DEVICE void publish(uint64_t bytes) {
    lane_.publish([&](int peer) { return peer == next_ ? static_cast<int64_t>(bytes) : -1; });
  }

  FLUXCCL_DEVICE bool begin(int64_t number) {
    if (!claim()) {
      return false;
    }
    const uint64_t bytes = bytesOf(number, plan_.rank);
    copyBlock(lane_.out(next_), plan_.input + plan_.begin(plan_.rank) + offset(number), bytes);
    publish(bytes);
    return true;
  }

  FLUXCCL_DEVICE bool receive(int64_t number) {
    const int round = roundOf(number);
    const int part = (plan_.rank - 1 - round + 2 * plan_.nRanks) % plan_.nRanks;
    const uint64_t at = plan_.begin(part) + offset(number);
    const uint64_t bytes = bytesOf(number, part);
    const bool isSentOn = round < rounds_ - 1;
    const bool isComplete = round >= plan_.nRanks - 2;
    const auto isPrevious = [&](int peer) { return peer == previous_; };
    if (!lane_.take(isPrevious) || (isSentOn && !claim())) {
      return false;
    }
    const uint8_t* in = lane_.in(previous_);
    uint8_t* slot = isSentOn ? lane_.out(next_) : nullptr;
    uint8_t* output = isComplete ? plan_.output + at : nullptr;
    if (round < plan_.nRanks - 1) {
      const uint8_t* own = plan_.input + at;
      reducePiece<T>(
          bytes, addressOf(own) | addressOf(output), plan_.op, isComplete ? plan_.nRanks : 1, 2,
          [&](int i) { return i == 0 ? in : own; }, (isSentOn ? 1 : 0) + (isComplete ? 1 : 0),
          [&](int i) { return i == 0 && isSentOn ? slot : output; });
    } else {
      if (isSentOn) {
        copyBlock(slot, in, bytes);
      }
      copyBlock(output, in, bytes);
    }
    if (isSentOn) {
      publish(bytes);
    }
    lane_.release(isPrevious);
    return true;
  }

  const ReductionPlan& plan_;
  Lane lane_;
  int next_;
  int previous_;
  int rounds_;
  uint64_t shareBegin_;
  uint64_t shareEnd_;
  uint64_t piece_;
};

template <typename T>
FLUXCCL_DEVICE void ring(const ReductionPlan& plan) {
  __shared__ Slots slots;
  RingLane<T>(plan, slots).run();
}

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
