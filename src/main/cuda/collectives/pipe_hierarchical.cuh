// All-reduce inside hosts and between them. Twin of HostHierarchical, where it is told how it works.
#pragma once

#include "pipe_ring.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

template <typename T>
class HierarchicalLane {
 public:
  FLUXCCL_DEVICE HierarchicalLane(const ReductionPlan& plan, Slots& slots)
      : plan_(plan), lane_(plan.pipes, plan.rank, plan.nRanks, slots) {}

  FLUXCCL_DEVICE void run() {
    const int behind = plan_.split != 0 ? 4 * kDepth : 3 * kDepth;
    // A shorter part may be shared by fewer lanes, which then have more of it.
    int64_t most = 0;
    for (int part = 0; part < plan_.nLocal; ++part) {
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

  FLUXCCL_DEVICE int localRank(int index) const { return plan_.places[index]; }
  FLUXCCL_DEVICE int railRank(int host) const { return plan_.places[plan_.nLocal + host]; }
  FLUXCCL_DEVICE int localIndexOf(int rank) const {
    return plan_.places[plan_.nLocal + plan_.hosts + rank];
  }
  FLUXCCL_DEVICE int hostOf(int rank) const {
    return plan_.places[plan_.nLocal + plan_.hosts + plan_.nRanks + rank];
  }

  FLUXCCL_DEVICE bool has(int part, int64_t step) const {
    return step >= 0 && step < plan_.layout.pieces(plan_.bytes(part));
  }

  FLUXCCL_DEVICE uint64_t begin(int part, int64_t step) const {
    return plan_.begin(part) + plan_.layout.pieceBegin(plan_.bytes(part), step);
  }

  FLUXCCL_DEVICE uint64_t length(int part, int64_t step) const {
    return plan_.layout.pieceBytes(plan_.bytes(part), step);
  }

  FLUXCCL_DEVICE int localPart(int distance) const {
    return (plan_.localIndex + distance) % plan_.nLocal;
  }

  FLUXCCL_DEVICE int otherHost(int distance) const { return (plan_.host + distance) % plan_.hosts; }

  FLUXCCL_DEVICE Range partOf(int host, uint64_t bytes) const {
    if (plan_.split == 0) {
      return Range{0, bytes};
    }
    const uint64_t stride = roundUp((bytes + plan_.hosts - 1) / plan_.hosts);
    const uint64_t offset = min(bytes, host * stride);
    return Range{offset, min(stride, bytes - offset)};
  }

  FLUXCCL_DEVICE static void copyBlock(void* to, const void* from, uint64_t bytes) {
    copy(to, from, bytes, threadIdx.x, blockDim.x);
  }

  FLUXCCL_DEVICE auto locals() const {
    return [this](int rank) { return localIndexOf(rank) >= 0; };
  }

  FLUXCCL_DEVICE bool giveLocally(int64_t step) {
    const auto wants = [&](int rank) {
      return localIndexOf(rank) >= 0 && has(localIndexOf(rank), step);
    };
    if (!lane_.claim(wants)) {
      return false;
    }
    for (int i = 1; i < plan_.nLocal; ++i) {
      const int part = localPart(i);
      if (has(part, step)) {
        copyBlock(lane_.out(localRank(part)), plan_.input + begin(part, step), length(part, step));
      }
    }
    lane_.publish([&](int rank) {
      return wants(rank) ? static_cast<int64_t>(length(localIndexOf(rank), step)) : -1;
    });
    return true;
  }

  FLUXCCL_DEVICE bool reduceLocally(int64_t step) {
    if (!has(plan_.localIndex, step)) {
      return true;
    }
    const uint64_t bytes = length(plan_.localIndex, step);
    const auto wants = [&](int rank) {
      return hostOf(rank) >= 0 && partOf(hostOf(rank), bytes).length > 0;
    };
    if (!lane_.take(locals()) || !lane_.claim(wants)) {
      return false;
    }
    const uint64_t at = begin(plan_.localIndex, step);
    const uint8_t* own = plan_.input + at;
    uint8_t* output = plan_.output + at;
    const auto sourceOf = [&](uint64_t offset) {
      return [this, own, offset](int i) {
        return (i == plan_.localIndex ? own : lane_.in(localRank(i))) + offset;
      };
    };
    if (plan_.split != 0) {
      for (int i = 0; i < plan_.hosts; ++i) {
        const int host = otherHost(i);
        const Range range = partOf(host, bytes);
        uint8_t* slot = i == 0 || range.length == 0 ? nullptr : lane_.out(railRank(host));
        reducePiece<T>(range.length, addressOf(own) | addressOf(output), plan_.op, 1, plan_.nLocal,
                       sourceOf(range.offset), slot == nullptr ? 1 : 2,
                       [&](int target) { return target == 0 ? output + range.offset : slot; });
      }
    } else {
      reducePiece<T>(bytes, addressOf(own) | addressOf(output), plan_.op, 1, plan_.nLocal,
                     sourceOf(0), plan_.hosts, [&](int i) {
                       return i == 0 ? output : lane_.out(railRank(otherHost(i)));
                     });
    }
    lane_.publish([&](int rank) {
      return wants(rank) ? static_cast<int64_t>(partOf(hostOf(rank), bytes).length) : -1;
    });
    lane_.release(locals());
    return true;
  }

  FLUXCCL_DEVICE bool reduceHosts(int64_t step) {
    if (!has(plan_.localIndex, step)) {
      return true;
    }
    const Range range = partOf(plan_.host, length(plan_.localIndex, step));
    if (range.length == 0) {
      return true;
    }
    const auto rails = [&](int rank) { return hostOf(rank) >= 0; };
    // What is not split is done with this, and may go to the local ranks.
    const bool split = plan_.split != 0;
    const auto targets = [&](int rank) { return (split ? hostOf(rank) : localIndexOf(rank)) >= 0; };
    if (!lane_.take(rails) || !lane_.claim(targets)) {
      return false;
    }
    uint8_t* mine = plan_.output + begin(plan_.localIndex, step) + range.offset;
    reducePiece<T>(
        range.length, addressOf(mine), plan_.op, plan_.nRanks, plan_.hosts,
        [&](int host) { return host == plan_.host ? mine : lane_.in(railRank(host)); },
        split ? plan_.hosts : plan_.nLocal, [&](int i) {
          return i == 0 ? mine
                        : lane_.out(split ? railRank(otherHost(i)) : localRank(localPart(i)));
        });
    lane_.publish(
        [&](int rank) { return targets(rank) ? static_cast<int64_t>(range.length) : -1; });
    lane_.release(rails);
    return true;
  }

  FLUXCCL_DEVICE bool takeFromHosts(int64_t step) {
    if (plan_.split == 0 || !has(plan_.localIndex, step)) {
      return true;
    }
    const uint64_t bytes = length(plan_.localIndex, step);
    const auto wants = [&](int rank) {
      return hostOf(rank) >= 0 && partOf(hostOf(rank), bytes).length > 0;
    };
    if (!lane_.take(wants) || !lane_.claim(locals())) {
      return false;
    }
    uint8_t* output = plan_.output + begin(plan_.localIndex, step);
    for (int i = 0; i < plan_.hosts; ++i) {
      const int host = otherHost(i);
      const Range range = partOf(host, bytes);
      if (range.length == 0) {
        continue;
      }
      const uint8_t* from = i == 0 ? output + range.offset : lane_.in(railRank(host));
      if (i > 0) {
        copyBlock(output + range.offset, from, range.length);
      }
      for (int local = 1; local < plan_.nLocal; ++local) {
        copyBlock(lane_.out(localRank(localPart(local))) + range.offset, from, range.length);
      }
    }
    lane_.publish(
        [&](int rank) { return localIndexOf(rank) >= 0 ? static_cast<int64_t>(bytes) : -1; });
    lane_.release(wants);
    return true;
  }

  FLUXCCL_DEVICE bool takeLocally(int64_t step) {
    if (step < 0) {
      return true;
    }
    const auto wants = [&](int rank) {
      return localIndexOf(rank) >= 0 && has(localIndexOf(rank), step);
    };
    if (!lane_.take(wants)) {
      return false;
    }
    for (int i = 1; i < plan_.nLocal; ++i) {
      const int part = localPart(plan_.nLocal - i);
      if (has(part, step)) {
        copyBlock(plan_.output + begin(part, step), lane_.in(localRank(part)), length(part, step));
      }
    }
    lane_.release(wants);
    return true;
  }

  const ReductionPlan& plan_;
  Lane lane_;
};

template <typename T>
FLUXCCL_DEVICE void hierarchical(const ReductionPlan& plan) {
  __shared__ Slots slots;
  HierarchicalLane<T>(plan, slots).run();
}

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
