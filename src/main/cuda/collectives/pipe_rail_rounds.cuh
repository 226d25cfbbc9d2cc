// SPDX-License-Identifier: Apache-2.0
// Hierarchical collectives in which every rank has a share for every rank. Twins of HierarchicalSchedule.Rounds, which
// describes how they work.
#pragma once

#include "pipe_hierarchical.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

// Self implements give(number, partner), pass(number, partner), finish(number, partner, isLast) and
// mostBytes().
template <typename Self>
class RailRounds : protected HierarchicalLane {
 public:
  FLUXCCL_DEVICE void run() {
    Self& self = static_cast<Self&>(*this);
    const int64_t rounds = cut(plan_.size, self.mostBytes()) * who_.hosts;
    const int64_t steps = rounds == 0 ? 0 : rounds + 2 * kSingleDepth;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t passed = step - kSingleDepth;
      const int64_t finished = passed - kSingleDepth;
      if (step < rounds && !self.give(number(step), partner(step))) {
        return;
      }
      if (passed >= 0 && passed < rounds && !self.pass(number(passed), partner(passed))) {
        return;
      }
      if (finished >= 0 &&
          !self.finish(number(finished), partner(finished), finished % who_.hosts == who_.hosts - 1)) {
        return;
      }
    }
  }

 protected:
  FLUXCCL_DEVICE RailRounds(const HierarchyPlan& plan, Slots& slots) : HierarchicalLane(plan, slots) {}

  FLUXCCL_DEVICE uint64_t mostBytes() const { return plan_.layout.slotBytes; }

  FLUXCCL_DEVICE uint64_t bytesOf(int64_t number) const { return length(number, plan_.size); }

  // Sends each local rank a piece of this rank's share for the rank at the local rank's place on the partner
  // host.
  FLUXCCL_DEVICE bool giveShares(int64_t number, int partner) {
    return giveLocals([&](int) { return bytesOf(number); },
                      [&](int place) { return plan_.inputOf(who_.rank(partner, place)) + at(number); });
  }

 private:
  FLUXCCL_DEVICE int64_t number(int64_t round) const { return round / who_.hosts; }
  FLUXCCL_DEVICE int partner(int64_t round) const {
    return (static_cast<int>(round % who_.hosts) + who_.hosts - who_.host) % who_.hosts;
  }
};

// The all-gather of HierarchicalSchedule.Rounds.
class AllGatherLane : public RailRounds<AllGatherLane> {
 public:
  FLUXCCL_DEVICE AllGatherLane(const HierarchyPlan& plan, Slots& slots) : RailRounds(plan, slots) {}

 private:
  friend class RailRounds<AllGatherLane>;

  FLUXCCL_DEVICE bool give(int64_t number, int partner) {
    if (partner == who_.host) {
      return true;
    }
    const int peer = who_.railRank(partner);
    if (!lane_.claim(only(peer))) {
      return false;
    }
    const uint64_t bytes = bytesOf(number);
    copyBlock(lane_.out(peer), plan_.input + at(number), bytes);
    publish(only(peer), bytes);
    return true;
  }

  FLUXCCL_DEVICE bool pass(int64_t number, int partner) {
    const int peer = who_.railRank(partner);
    uint8_t* to = plan_.outputOf(peer) + at(number);
    if (partner != who_.host) {
      return takeAndGiveOn(peer, to, bytesOf(number), -1, -1);
    }
    const uint8_t* from = plan_.input + at(number);
    if (from != to) {
      copyBlock(to, from, bytesOf(number));
    }
    return giveOn(from, bytesOf(number), -1, -1);
  }

  FLUXCCL_DEVICE bool finish(int64_t number, int partner, bool) {
    return takeLocals([&](int) { return bytesOf(number); },
                      [&](int place) { return plan_.outputOf(who_.rank(partner, place)) + at(number); });
  }
};

// The reduce-scatter of HierarchicalSchedule.Rounds.
class ReduceScatterLane : public RailRounds<ReduceScatterLane> {
 public:
  FLUXCCL_DEVICE ReduceScatterLane(const HierarchyPlan& plan, Slots& slots) : RailRounds(plan, slots) {}

 private:
  friend class RailRounds<ReduceScatterLane>;

  FLUXCCL_DEVICE bool give(int64_t number, int partner) { return giveShares(number, partner); }

  FLUXCCL_DEVICE bool pass(int64_t number, int partner) {
    const int peer = who_.railRank(partner);
    // The rank claims no slot if it is the target itself.
    const auto target = only(peer);
    if (!lane_.take(locals()) || !lane_.claim(target)) {
      return false;
    }
    const uint64_t bytes = bytesOf(number);
    // In place, the own share is source and target at the same time.
    combine(localSources(plan_.inputOf(peer) + at(number), -1),
            partner == who_.host ? plan_.output + at(number) : lane_.out(peer), bytes, plan_.type, plan_.op, 1);
    publish(target, bytes);
    lane_.release(locals());
    return true;
  }

  FLUXCCL_DEVICE bool finish(int64_t number, int, bool isLast) {
    if (!isLast) {
      return true;
    }
    if (!lane_.take(rail())) {
      return false;
    }
    uint8_t* to = plan_.output + at(number);
    combine(railSources(to), to, bytesOf(number), plan_.type, plan_.op, plan_.nRanks);
    lane_.release(rail());
    return true;
  }
};

// The all-to-all of HierarchicalSchedule.Rounds.
class AllToAllLane : public RailRounds<AllToAllLane> {
 public:
  FLUXCCL_DEVICE AllToAllLane(const HierarchyPlan& plan, Slots& slots) : RailRounds(plan, slots) {}

 private:
  friend class RailRounds<AllToAllLane>;

  // A slot takes a piece of each rank of the host.
  FLUXCCL_DEVICE uint64_t mostBytes() const {
    const uint64_t each = plan_.layout.slotBytes / who_.nLocal;
    return each < kLine ? each : each / kLine * kLine;
  }

  FLUXCCL_DEVICE bool give(int64_t number, int partner) { return giveShares(number, partner); }

  FLUXCCL_DEVICE bool pass(int64_t number, int partner) {
    return partner == who_.host ? placeLocal(number) : gather(number, partner);
  }

  FLUXCCL_DEVICE bool placeLocal(int64_t number) {
    const uint8_t* from = plan_.inputOf(plan_.rank) + at(number);
    uint8_t* to = plan_.outputOf(plan_.rank) + at(number);
    if (from != to) {
      copyBlock(to, from, bytesOf(number));
    }
    return takeLocals([&](int) { return bytesOf(number); },
                      [&](int place) { return plan_.outputOf(who_.localRank(place)) + at(number); });
  }

  FLUXCCL_DEVICE bool gather(int64_t number, int partner) {
    const int peer = who_.railRank(partner);
    if (!lane_.claim(only(peer))) {
      return false;
    }
    const uint64_t bytes = bytesOf(number);
    uint8_t* slot = lane_.out(peer);
    copyBlock(slot + who_.localIndex * bytes, plan_.inputOf(peer) + at(number), bytes);
    if (!takeLocals([&](int) { return bytes; }, [&](int place) { return slot + place * bytes; })) {
      return false;
    }
    publish(only(peer), who_.nLocal * bytes);
    return true;
  }

  // In place, this overwrites only data that has already been sent.
  FLUXCCL_DEVICE bool finish(int64_t number, int partner, bool) {
    if (partner == who_.host) {
      return true;
    }
    const int peer = who_.railRank(partner);
    if (!lane_.take(only(peer))) {
      return false;
    }
    const uint64_t bytes = bytesOf(number);
    for (int place = 0; place < who_.nLocal; ++place) {
      copyBlock(plan_.outputOf(who_.rank(partner, place)) + at(number), lane_.in(peer) + place * bytes,
                bytes);
    }
    lane_.release(only(peer));
    return true;
  }
};

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
