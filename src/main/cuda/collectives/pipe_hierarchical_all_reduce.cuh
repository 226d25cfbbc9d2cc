// SPDX-License-Identifier: Apache-2.0
// All-reduce inside hosts and between them. Twin of HierarchicalSchedule.AllReduce, which describes how it works.
#pragma once

#include "pipe_hierarchical.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

template <typename T>
class AllReduceLane {
 public:
  FLUXCCL_DEVICE AllReduceLane(const HierarchyPlan& plan, Slots& slots)
      : plan_(plan), who_(plan.hierarchy), lane_(plan.pipes, plan.rank, plan.nRanks, slots) {}

  FLUXCCL_DEVICE void run() {
    const int behind = plan_.split != 0 ? 4 * kDepth : 3 * kDepth;
    // Fewer lanes may share a shorter part; each of them then has more of it.
    int64_t most = 0;
    for (int part = 0; part < who_.nLocal; ++part) {
      most = max(most, plan_.layout.pieces(plan_.bytes(part)));
    }
    const int64_t steps = most + behind;
    for (int64_t step = 0; step < steps; ++step) {
      if (!giveLocally(step) || !reduceLocally(step - kDepth) || !reduceHosts(step - 2 * kDepth) ||
          !takeFromHosts(step - 3 * kDepth) || !takeLocally(step - behind)) {
        return;
      }
    }
  }

 private:
  // A part of a piece.
  struct Range {
    uint64_t offset;
    uint64_t length;
  };

  FLUXCCL_DEVICE bool has(int part, int64_t step) const {
    return step >= 0 && step < plan_.layout.pieces(plan_.bytes(part));
  }

  FLUXCCL_DEVICE uint64_t begin(int part, int64_t step) const {
    return plan_.begin(part) + plan_.layout.pieceBegin(plan_.bytes(part), step);
  }

  FLUXCCL_DEVICE uint64_t length(int part, int64_t step) const {
    return plan_.layout.pieceBytes(plan_.bytes(part), step);
  }

  FLUXCCL_DEVICE Range partOf(int host, uint64_t bytes) const {
    if (plan_.split == 0) {
      return Range{0, bytes};
    }
    const uint64_t stride = roundUp((bytes + who_.hosts - 1) / who_.hosts);
    const uint64_t offset = min(bytes, host * stride);
    return Range{offset, min(stride, bytes - offset)};
  }

  FLUXCCL_DEVICE auto locals() const {
    return [this](int rank) { return who_.placeOf(rank) >= 0; };
  }

  FLUXCCL_DEVICE bool giveLocally(int64_t step) {
    const auto wants = [&](int rank) {
      return who_.placeOf(rank) >= 0 && has(who_.placeOf(rank), step);
    };
    if (!lane_.claim(wants)) {
      return false;
    }
    for (int i = 1; i < who_.nLocal; ++i) {
      const int part = who_.otherPlace(i);
      if (has(part, step)) {
        copyBlock(lane_.out(who_.localRank(part)), plan_.input + begin(part, step), length(part, step));
      }
    }
    lane_.publish([&](int rank) {
      return wants(rank) ? static_cast<int64_t>(length(who_.placeOf(rank), step)) : -1;
    });
    return true;
  }

  FLUXCCL_DEVICE bool reduceLocally(int64_t step) {
    if (!has(who_.localIndex, step)) {
      return true;
    }
    const uint64_t bytes = length(who_.localIndex, step);
    const auto wants = [&](int rank) {
      return who_.hostOf(rank) >= 0 && partOf(who_.hostOf(rank), bytes).length > 0;
    };
    if (!lane_.take(locals()) || !lane_.claim(wants)) {
      return false;
    }
    const uint64_t at = begin(who_.localIndex, step);
    const uint8_t* own = plan_.input + at;
    uint8_t* output = plan_.output + at;
    const auto sourceOf = [&](uint64_t offset) {
      return [this, own, offset](int i) {
        return (i == who_.localIndex ? own : lane_.in(who_.localRank(i))) + offset;
      };
    };
    if (plan_.split != 0) {
      for (int i = 0; i < who_.hosts; ++i) {
        const int host = who_.otherHost(i);
        const Range range = partOf(host, bytes);
        uint8_t* slot = i == 0 || range.length == 0 ? nullptr : lane_.out(who_.railRank(host));
        reducePiece<T>(range.length, addressOf(own) | addressOf(output), plan_.op, 1, who_.nLocal,
                       sourceOf(range.offset), slot == nullptr ? 1 : 2,
                       [&](int target) { return target == 0 ? output + range.offset : slot; });
      }
    } else {
      reducePiece<T>(bytes, addressOf(own) | addressOf(output), plan_.op, 1, who_.nLocal,
                     sourceOf(0), who_.hosts, [&](int i) {
                       return i == 0 ? output : lane_.out(who_.railRank(who_.otherHost(i)));
                     });
    }
    lane_.publish([&](int rank) {
      return wants(rank) ? static_cast<int64_t>(partOf(who_.hostOf(rank), bytes).length) : -1;
    });
    lane_.release(locals());
    return true;
  }

  FLUXCCL_DEVICE bool reduceHosts(int64_t step) {
    if (!has(who_.localIndex, step)) {
      return true;
    }
    const Range range = partOf(who_.host, length(who_.localIndex, step));
    if (range.length == 0) {
      return true;
    }
    const auto rails = [&](int rank) { return who_.hostOf(rank) >= 0; };
    // A piece that is not split is complete now, and goes to the local ranks.
    const bool split = plan_.split != 0;
    const auto targets = [&](int rank) { return (split ? who_.hostOf(rank) : who_.placeOf(rank)) >= 0; };
    if (!lane_.take(rails) || !lane_.claim(targets)) {
      return false;
    }
    uint8_t* mine = plan_.output + begin(who_.localIndex, step) + range.offset;
    reducePiece<T>(
        range.length, addressOf(mine), plan_.op, plan_.nRanks, who_.hosts,
        [&](int host) { return host == who_.host ? mine : lane_.in(who_.railRank(host)); },
        split ? who_.hosts : who_.nLocal, [&](int i) {
          return i == 0 ? mine
                        : lane_.out(split ? who_.railRank(who_.otherHost(i)) : who_.localRank(who_.otherPlace(i)));
        });
    lane_.publish(
        [&](int rank) { return targets(rank) ? static_cast<int64_t>(range.length) : -1; });
    lane_.release(rails);
    return true;
  }

  FLUXCCL_DEVICE bool takeFromHosts(int64_t step) {
    if (plan_.split == 0 || !has(who_.localIndex, step)) {
      return true;
    }
    const uint64_t bytes = length(who_.localIndex, step);
    const auto wants = [&](int rank) {
      return who_.hostOf(rank) >= 0 && partOf(who_.hostOf(rank), bytes).length > 0;
    };
    if (!lane_.take(wants) || !lane_.claim(locals())) {
      return false;
    }
    uint8_t* output = plan_.output + begin(who_.localIndex, step);
    for (int i = 0; i < who_.hosts; ++i) {
      const int host = who_.otherHost(i);
      const Range range = partOf(host, bytes);
      if (range.length == 0) {
        continue;
      }
      const uint8_t* from = i == 0 ? output + range.offset : lane_.in(who_.railRank(host));
      if (i > 0) {
        copyBlock(output + range.offset, from, range.length);
      }
      for (int local = 1; local < who_.nLocal; ++local) {
        copyBlock(lane_.out(who_.localRank(who_.otherPlace(local))) + range.offset, from, range.length);
      }
    }
    lane_.publish(
        [&](int rank) { return who_.placeOf(rank) >= 0 ? static_cast<int64_t>(bytes) : -1; });
    lane_.release(wants);
    return true;
  }

  FLUXCCL_DEVICE bool takeLocally(int64_t step) {
    if (step < 0) {
      return true;
    }
    const auto wants = [&](int rank) {
      return who_.placeOf(rank) >= 0 && has(who_.placeOf(rank), step);
    };
    if (!lane_.take(wants)) {
      return false;
    }
    for (int i = 1; i < who_.nLocal; ++i) {
      const int part = who_.otherPlace(who_.nLocal - i);
      if (has(part, step)) {
        copyBlock(plan_.output + begin(part, step), lane_.in(who_.localRank(part)), length(part, step));
      }
    }
    lane_.release(wants);
    return true;
  }

  const HierarchyPlan& plan_;
  const Hierarchy& who_;
  Lane lane_;
};

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
