// SPDX-License-Identifier: Apache-2.0
// Collectives as one or two exchanges between all pairs of ranks. Twin of Exchange and HostSchedule.AllPairs, which
// describe how they work.
#pragma once

#include "pipe.cuh"
#include "pipe_reduction.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

// The distribution of bytes over ranks. Twin of PeerByteRanges.
struct PeerByteRanges {
  uint64_t total;
  uint64_t stride;
  uint64_t each;
  // The only rank that takes part, and a rank that takes no part; negative for none.
  int32_t only;
  int32_t except;

  FLUXCCL_DEVICE uint64_t offset(int peer) const { return min(total, stride * peer); }

  // Returns the bytes of a rank; negative if it takes no part.
  FLUXCCL_DEVICE int64_t bytes(int peer) const {
    if ((only >= 0 && peer != only) || peer == except) {
      return -1;
    }
    return static_cast<int64_t>(min(each, total - offset(peer)));
  }
};
FLUXCCL_ASSERT_SIZE(PeerByteRanges, 32);

// Written by GpuAlgorithms.
struct ExchangePlan {
  Pipe* pipes;
  Layout layout;
  int32_t rank;
  int32_t nRanks;
  const uint8_t* input;
  const uint8_t* own;
  uint8_t* place;
  const uint8_t* handOnFrom;
  uint8_t* gather;
  const uint8_t* selfFrom;
  uint8_t* selfTo;
  uint64_t selfBytes;
  PeerByteRanges give;
  PeerByteRanges take;
  PeerByteRanges handOn;
  PeerByteRanges collect;
  ReduceOp op;
  int32_t reduces;
  int32_t twice;
  int32_t always;
};
FLUXCCL_ASSERT_OFFSET(ExchangePlan, input, 24);
FLUXCCL_ASSERT_OFFSET(ExchangePlan, selfBytes, 80);
FLUXCCL_ASSERT_OFFSET(ExchangePlan, give, 88);
FLUXCCL_ASSERT_OFFSET(ExchangePlan, op, 216);
FLUXCCL_ASSERT_SIZE(ExchangePlan, 232);

// The bytes that are sent and received in the first exchange, according to the plan.
struct PlannedParts {
  const ExchangePlan& plan;

  FLUXCCL_DEVICE int64_t giveBytes(int peer) const { return plan.give.bytes(peer); }
  FLUXCCL_DEVICE uint64_t giveOffset(int peer) const { return plan.give.offset(peer); }
  FLUXCCL_DEVICE int64_t takeBytes(int peer) const { return plan.take.bytes(peer); }
  FLUXCCL_DEVICE uint64_t takeOffset(int peer) const { return plan.take.offset(peer); }
};

// The bytes of an all-to-all-v, as the end of each rank's bytes. A kernel's parameters have room for kMost
// ranks.
struct ListedParts {
  static constexpr int kMost = 128;
  uint64_t giveEnd[kMost];
  uint64_t takeEnd[kMost];

  FLUXCCL_DEVICE int64_t giveBytes(int peer) const { return giveEnd[peer] - giveOffset(peer); }
  FLUXCCL_DEVICE uint64_t giveOffset(int peer) const { return peer == 0 ? 0 : giveEnd[peer - 1]; }
  FLUXCCL_DEVICE int64_t takeBytes(int peer) const { return takeEnd[peer] - takeOffset(peer); }
  FLUXCCL_DEVICE uint64_t takeOffset(int peer) const { return peer == 0 ? 0 : takeEnd[peer - 1]; }
};
FLUXCCL_ASSERT_SIZE(ListedParts, 2048);

template <typename T, typename Parts>
class ExchangeLane {
 public:
  FLUXCCL_DEVICE ExchangeLane(const ExchangePlan& plan, const Parts& parts, Slots& slots)
      : plan_(plan), parts_(parts), lane_(plan.pipes, plan.rank, plan.nRanks, slots) {}

  FLUXCCL_DEVICE void run() {
    copyOwn();
    const int64_t steps = mostPieces();
    const int64_t all = steps == 0 ? 0 : steps + (plan_.twice != 0 ? 2 * kDepth : kDepth);
    for (int64_t step = 0; step < all; ++step) {
      if (!give(step) || !takeAndHandOn(step - kDepth) || !collect(step - 2 * kDepth)) {
        return;
      }
    }
  }

 private:
  FLUXCCL_DEVICE int64_t pieces(int64_t bytes) const {
    return plan_.always != 0 && bytes >= 0 ? 1 : plan_.layout.pieces(bytes);
  }

  FLUXCCL_DEVICE int64_t mostPieces() const {
    int64_t most = 0;
    for (int peer = 0; peer < plan_.nRanks; ++peer) {
      most = max(most, pieces(parts_.giveBytes(peer)));
      most = max(most, pieces(parts_.takeBytes(peer)));
      most = max(most, pieces(plan_.handOn.bytes(peer)));
      most = max(most, pieces(plan_.collect.bytes(peer)));
    }
    return most;
  }

  FLUXCCL_DEVICE void copyOwn() const {
    const uint64_t begin = plan_.layout.begin(plan_.selfBytes);
    copyBlock(plan_.selfTo + begin, plan_.selfFrom + begin, plan_.layout.length(plan_.selfBytes));
  }

  // Sends a piece to every rank that receives one; from(peer) is where all data for that rank begins.
  template <typename BytesOf, typename From>
  FLUXCCL_DEVICE bool send(int64_t step, BytesOf bytesOf, From from) {
    const auto has = [&](int peer) { return step < pieces(bytesOf(peer)); };
    if (!lane_.claim(has)) {
      return false;
    }
    for (int i = 1; i < plan_.nRanks; ++i) {
      const int peer = lane_.peer(i);
      if (has(peer)) {
        const uint64_t bytes = bytesOf(peer);
        copyBlock(lane_.out(peer), from(peer) + plan_.layout.pieceBegin(bytes, step),
                  plan_.layout.pieceBytes(bytes, step));
      }
    }
    lane_.publish([&](int peer) -> int64_t {
      return has(peer) ? static_cast<int64_t>(plan_.layout.pieceBytes(bytesOf(peer), step)) : -1;
    });
    return true;
  }

  // Receives a piece from every rank that sends one; to(peer) is where all data of that rank goes.
  template <typename BytesOf, typename To>
  FLUXCCL_DEVICE bool receive(int64_t step, BytesOf bytesOf, To to) {
    const auto has = [&](int peer) { return step < pieces(bytesOf(peer)); };
    if (!lane_.take(has)) {
      return false;
    }
    for (int i = 1; i < plan_.nRanks; ++i) {
      const int peer = lane_.peer(plan_.nRanks - i);
      if (has(peer)) {
        const uint64_t bytes = bytesOf(peer);
        copyBlock(to(peer) + plan_.layout.pieceBegin(bytes, step), lane_.in(peer),
                  plan_.layout.pieceBytes(bytes, step));
      }
    }
    lane_.release(has);
    return true;
  }

  FLUXCCL_DEVICE bool give(int64_t step) {
    return send(step, [&](int peer) { return parts_.giveBytes(peer); },
                [&](int peer) { return plan_.input + parts_.giveOffset(peer); });
  }

  FLUXCCL_DEVICE bool takeAndHandOn(int64_t step) {
    if (step < 0) {
      return true;
    }
    if (plan_.reduces != 0) {
      return reduce(step);
    }
    const bool placed = receive(step, [&](int peer) { return parts_.takeBytes(peer); },
                                [&](int peer) { return plan_.place + parts_.takeOffset(peer); });
    if (!placed || plan_.twice == 0) {
      return placed;
    }
    // All threads must have placed the data before it is forwarded.
    __syncthreads();
    return send(step, [&](int peer) { return plan_.handOn.bytes(peer); },
                [&](int) { return plan_.handOnFrom; });
  }

  // Reduces a piece in rank order, into the output and into the slots to the ranks that receive the result.
  FLUXCCL_DEVICE bool reduce(int64_t step) {
    // Every rank sends the same number of bytes.
    const int64_t bytes = parts_.takeBytes(lane_.peer(1));
    if (step >= pieces(bytes)) {
      return true;
    }
    const uint64_t begin = plan_.layout.pieceBegin(bytes, step);
    const int64_t length = static_cast<int64_t>(plan_.layout.pieceBytes(bytes, step));
    const auto isHandedOn = [&](int peer) { return plan_.handOn.bytes(peer) > 0; };
    const auto everybody = [](int) { return true; };
    if (!lane_.take(everybody) || !lane_.claim(isHandedOn)) {
      return false;
    }
    const uint8_t* own = plan_.own + begin;
    uint8_t* place = plan_.place == nullptr ? nullptr : plan_.place + begin;
    const auto sourceOf = [&](int rank) { return rank == plan_.rank ? own : lane_.in(rank); };
    const bool toAll = plan_.handOn.only < 0 && plan_.handOn.bytes(lane_.peer(1)) > 0;
    const int slots = toAll ? plan_.nRanks - 1 : isHandedOn(plan_.handOn.only) ? 1 : 0;
    const auto targetOf = [&](int i) {
      return i == slots ? place : lane_.out(toAll ? lane_.peer(i + 1) : plan_.handOn.only);
    };
    reducePiece<T>(length, addressOf(own) | addressOf(place), plan_.op, plan_.nRanks, plan_.nRanks,
                   sourceOf, place == nullptr ? slots : slots + 1, targetOf);
    lane_.publish([&](int peer) -> int64_t { return isHandedOn(peer) ? length : -1; });
    lane_.release(everybody);
    return true;
  }

  FLUXCCL_DEVICE bool collect(int64_t step) {
    if (step < 0 || plan_.twice == 0) {
      return true;
    }
    return receive(step, [&](int peer) { return plan_.collect.bytes(peer); },
                   [&](int peer) { return plan_.gather + plan_.collect.offset(peer); });
  }

  const ExchangePlan& plan_;
  const Parts& parts_;
  Lane lane_;
};

template <typename T, typename Parts>
FLUXCCL_DEVICE void exchange(const ExchangePlan& plan, const Parts& parts) {
  __shared__ Slots slots;
  ExchangeLane<T, Parts>(plan, parts, slots).run();
}

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
