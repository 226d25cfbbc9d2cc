// SPDX-License-Identifier: Apache-2.0
// Hierarchical broadcast and reduce, along chains of hosts. Twins of HierarchicalSchedule.Chain, which describes how
// they work.
#pragma once

#include "pipe_hierarchical.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

// A rank handles one part of the buffer, in chains that begin or end at the root's host.
class ChainLane : protected HierarchicalLane {
 protected:
  FLUXCCL_DEVICE ChainLane(const HierarchyPlan& plan, Slots& slots)
      : HierarchicalLane(plan, slots),
        root_(who_.rank(plan.rootHost, plan.rootPlace)),
        isRoot_(plan.rank == root_),
        distance_((who_.host + who_.hosts - plan.rootHost) % who_.hosts) {}

  // Return the bytes of a part in a piece, and where they begin in the buffer.
  FLUXCCL_DEVICE uint64_t bytesOf(int part, int64_t number) const { return length(number, plan_.bytes(part)); }
  FLUXCCL_DEVICE uint64_t offset(int part, int64_t number) const { return plan_.begin(part) + at(number); }

  FLUXCCL_DEVICE bool giveParts(int64_t number) {
    return giveLocals([&](int part) { return bytesOf(part, number); },
                      [&](int part) { return plan_.input + offset(part, number); });
  }

  FLUXCCL_DEVICE bool collectParts(int64_t number) {
    return takeLocals([&](int part) { return bytesOf(part, number); },
                      [&](int part) { return plan_.output + offset(part, number); });
  }

  // Return the rail's rank one host nearer to the root's host, and one further; -1 for none.
  FLUXCCL_DEVICE int nearer() const { return distance_ == 0 ? -1 : who_.railRank(who_.otherHost(who_.hosts - 1)); }
  FLUXCCL_DEVICE int further() const {
    return distance_ == who_.hosts - 1 ? -1 : who_.railRank(who_.otherHost(1));
  }

  int root_;
  bool isRoot_;
  // Distance from the root's host, in hosts.
  int distance_;
};

// The broadcast of HierarchicalSchedule.Chain.
class BroadcastLane : public ChainLane {
 public:
  FLUXCCL_DEVICE BroadcastLane(const HierarchyPlan& plan, Slots& slots) : ChainLane(plan, slots) {}

  FLUXCCL_DEVICE void run() {
    const int64_t pieces = cut(plan_.stride, plan_.layout.slotBytes);
    const int64_t steps = pieces == 0 ? 0 : pieces + kDepth;
    for (int64_t step = 0; step < steps; ++step) {
      const bool alive = isRoot_ ? giveParts(step) && giveOnOwn(step - kDepth)
                                 : takeOwn(step) && collectParts(step - kDepth);
      if (!alive) {
        return;
      }
    }
  }

 private:
  FLUXCCL_DEVICE bool giveOnOwn(int64_t number) {
    if (plan_.output != plan_.input) {
      for (int part = 0; part < who_.nLocal; ++part) {
        const uint64_t bytes = bytesOf(part, number);
        if (bytes > 0) {
          copyBlock(plan_.output + offset(part, number), plan_.input + offset(part, number), bytes);
        }
      }
    }
    const uint64_t bytes = bytesOf(who_.localIndex, number);
    return bytes == 0 || giveOn(plan_.input + offset(who_.localIndex, number), bytes, -1, further());
  }

  // Receives a piece from the root or the previous host, and forwards it to the next host and to the local
  // ranks except the root.
  FLUXCCL_DEVICE bool takeOwn(int64_t number) {
    const uint64_t bytes = bytesOf(who_.localIndex, number);
    return bytes == 0 || takeAndGiveOn(distance_ == 0 ? root_ : nearer(),
                                       plan_.output + offset(who_.localIndex, number), bytes, root_, further());
  }
};

// The reduce of HierarchicalSchedule.Chain.
class ReduceLane : public ChainLane {
 public:
  FLUXCCL_DEVICE ReduceLane(const HierarchyPlan& plan, Slots& slots) : ChainLane(plan, slots) {}

  FLUXCCL_DEVICE void run() {
    const int64_t pieces = cut(plan_.stride, plan_.layout.slotBytes);
    const int64_t steps = pieces == 0 ? 0 : pieces + 2 * kDepth;
    for (int64_t step = 0; step < steps; ++step) {
      if (!giveParts(step) || !combineOwn(step - kDepth) || (isRoot_ && !collectParts(step - 2 * kDepth))) {
        return;
      }
    }
  }

 private:
  // Combines the local pieces with the one from further away, and sends the result nearer to the root.
  FLUXCCL_DEVICE bool combineOwn(int64_t number) {
    const uint64_t bytes = bytesOf(who_.localIndex, number);
    if (bytes == 0) {
      return true;
    }
    const uint64_t from = offset(who_.localIndex, number);
    const int source = further();
    const int target = distance_ == 0 ? root_ : nearer();
    const auto sources = [&](int rank) { return rank == source || who_.placeOf(rank) >= 0; };
    // The rank claims no slot if it is the target itself.
    if (!lane_.take(sources) || !lane_.claim(only(target))) {
      return false;
    }
    combine(localSources(plan_.input + from, source), isRoot_ ? plan_.output + from : lane_.out(target),
            bytes, plan_.type, plan_.op, distance_ == 0 ? plan_.nRanks : 1);
    publish(only(target), bytes);
    lane_.release(sources);
    return true;
  }
};

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
