// SPDX-License-Identifier: Apache-2.0
// Dispatch: sends each token once to every rank that has one of its experts. The receiver places the tokens in
// the order of ranks, then of tokens.
//
//   header   fault, value; bits of the tokens that follow; how many tokens each expert of the receiver gets
//   token    values, scales, experts and weights, in rows of packets
//
// Every block reads all ids of this rank, so that no block waits for another one.
#pragma once

#include "token_rows.cuh"

namespace fluxccl {
namespace collectives {

#if defined(FLUXCCL_CUDA)

class Dispatch {
 public:
  FLUXCCL_DEVICE Dispatch(const MappedPeers& peers, const DispatchTask& task)
      : peers_(peers), task_(task.experts), rows_(peers, task), words_(task.experts.words()) {}

  FLUXCCL_DEVICE void run() {
    uint32_t faulty;
    uint4 values;
    Ids ids;
    uint32_t epoch = beginEpoch(peers_, [&] {
      faulty = task_.area.faultyEpoch(peers_);
      ids = loadIds(threadIdx.x, 0);
      values = firstValues();
    });
    const uint32_t first = epoch;
    bool going = !RouteArea::hasFailed(faulty, first);
    readIds(ids, first, going);
    // A header from every peer proves that all launches have started, so a one-slice dispatch needs no barrier.
    const bool isSliced = tokens() > task_.sliceTokens;
    for (uint32_t begin = 0; going && begin < tokens(); begin += task_.sliceTokens) {
      if (begin > 0) {
        epoch = nextEpoch(epoch);
      }
      const uint32_t count = min(task_.sliceTokens, tokens() - begin);
      if (isSliced) {
        beginSlice(peers_, epoch);
      }
      send(begin, count, epoch, values);
      uint4 arrived;
      going = begin > 0 || receiveHeaders(first, arrived);
      if (going) {
        copyOwn(begin, count, values);
      }
      going = going && receive(begin, count, epoch, arrived);
      if (isSliced) {
        going = endSlice(peers_, epoch, going);
      }
    }
    endEpoch(peers_, epoch, __syncthreads_and(going));
  }

 private:
  // Some of a token's experts.
  struct Ids {
    static constexpr int32_t kCount = 8;
    int32_t each[kCount];
  };

  struct Shared {
    RoutePlan plan;
    // In block 0: the number of this rank's tokens for each expert of all ranks, and of the other ranks' tokens for
    // each of this rank's experts.
    uint32_t sent[ExpertTask::kMaxExperts];
    uint32_t received[ExpertTask::kMaxExperts];
    uint32_t faults[MappedPeers::kMaxRanks];
    uint32_t values[MappedPeers::kMaxRanks];
    uint32_t total;
    bool isWhole;
    int32_t wrong;
  };

  static FLUXCCL_DEVICE Shared& shared() {
    __shared__ Shared memory;
    return memory;
  }

  FLUXCCL_DEVICE uint32_t tokens() const { return static_cast<uint32_t>(task_.tokens); }
  FLUXCCL_DEVICE uint32_t expertsPerRank() const { return task_.expertsPerRank.by; }

  // Determines the receivers of each token, and sends headers if `going` is true. If an id is wrong, this rank sends no
  // token. ids: the first experts of the token with this thread's index.
  FLUXCCL_DEVICE void readIds(Ids ids, uint32_t epoch, bool going) {
    Shared& s = shared();
    for (int32_t i = threadIdx.x; i < task_.experts && blockIdx.x == 0; i += blockDim.x) {
      s.sent[i] = 0;
      s.received[i] = 0;
    }
    if (threadIdx.x == 0) {
      s.wrong = 0;
    }
    __syncthreads();
    bool isWrong = false;
    for (uint32_t word = threadIdx.x / kLanes; word < words_; word += blockDim.x / kLanes) {
      const uint32_t token = word * 32 + laneId();
      const uint32_t ranks = ranksOf(token, token == threadIdx.x ? ids : loadIds(token, 0), isWrong);
      for (int rank = 0; rank < peers_.nRanks; ++rank) {
        const uint32_t bits = __ballot_sync(kAllLanes, ranks >> rank & 1);
        if (laneId() == 0) {
          s.plan.sent[rank * words_ + word] = bits;
        }
      }
    }
    if (blockIdx.x == 0) {
      countExperts();
    }
    isWrong = __syncthreads_or(isWrong);
    if (isWrong) {
      for (uint32_t i = threadIdx.x; i < words_ * peers_.nRanks; i += blockDim.x) {
        s.plan.sent[i] = 0;
      }
      if (going && blockIdx.x == 0 && threadIdx.x == 0) {
        task_.area.report(peers_, epoch, Fault::EXPERT, peers_.rank, static_cast<uint32_t>(s.wrong));
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      s.faults[peers_.rank] = static_cast<uint32_t>(isWrong ? Fault::EXPERT : Fault::NONE);
    }
    if (going && blockIdx.x == 0) {
      sendHeaders(isWrong ? Fault::EXPERT : Fault::NONE, epoch);
    }
  }

  // Loads experts of a token from one on; -1 beyond the end.
  FLUXCCL_DEVICE Ids loadIds(uint32_t token, int32_t first) const {
    Ids ids;
#pragma unroll
    for (int32_t i = 0; i < Ids::kCount; ++i) {
      ids.each[i] = token < tokens() && first + i < task_.topK ? task_.ids[token * task_.topK + first + i] : -1;
    }
    return ids;
  }

  // Returns the ranks of a token's experts, as bits. ids: the first.
  FLUXCCL_DEVICE uint32_t ranksOf(uint32_t token, Ids ids, bool& isWrong) const {
    uint32_t ranks = 0;
    int32_t wrong = -1;
    for (int32_t first = 0;;) {
#pragma unroll
      for (int32_t i = 0; i < Ids::kCount; ++i) {
        const int32_t id = ids.each[i];
        const bool isExpert = static_cast<uint32_t>(id) < static_cast<uint32_t>(task_.experts);
        ranks |= isExpert ? 1u << task_.expertsPerRank.quotient(id) : 0;
        wrong = isExpert || id == -1 ? wrong : id;
      }
      first += Ids::kCount;
      if (first >= task_.topK) {
        break;
      }
      ids = loadIds(token, first);
    }
    if (wrong != -1) {
      isWrong = true;
      atomicExch(&shared().wrong, wrong);
    }
    return ranks;
  }

  // By block 0: counts the tokens of each expert. Starts with the last threads, because the first warps have other
  // work.
  FLUXCCL_DEVICE void countExperts() const {
    for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < tokens() * task_.topK; i += blockDim.x) {
      const uint32_t id = task_.ids[i];
      if (id < static_cast<uint32_t>(task_.experts)) {
        atomicAdd(&shared().sent[id], 1u);
      }
    }
  }

  FLUXCCL_DEVICE uint32_t headerLength() const {
    return RouteArea::kHeaderWords + words_ + expertsPerRank();
  }

  // Calls visit(peer, at) for this thread's words of all headers, which have that length; peer: 0 to the others - 1.
  template <class Visit>
  FLUXCCL_DEVICE void visitHeaders(uint32_t length, Visit visit) const {
    for (uint32_t i = threadIdx.x; i < length * (peers_.nRanks - 1); i += blockDim.x) {
      uint32_t peer = 0;
      uint32_t at = i;
      for (; at >= length; at -= length) {
        ++peer;
      }
      visit(peer, at);
    }
  }

  FLUXCCL_DEVICE void sendHeaders(Fault fault, uint32_t epoch) const {
    const Shared& s = shared();
    visitHeaders(headerLength(), [&](uint32_t i, uint32_t at) {
      const int peer = peers_.successor(1 + i);
      uint32_t word = at == 0 ? static_cast<uint32_t>(fault) : at == 1 ? static_cast<uint32_t>(s.wrong) : 0;
      if (at >= RouteArea::kHeaderWords + words_) {
        const uint32_t expert = at - RouteArea::kHeaderWords - words_;
        word = fault == Fault::NONE ? s.sent[peer * expertsPerRank() + expert] : 0;
      } else if (at >= RouteArea::kHeaderWords) {
        word = s.plan.sent[peer * words_ + at - RouteArea::kHeaderWords];
      }
      task_.area.header(peers_, peer, peers_.rank, epoch)[at].write(word, epoch);
    });
  }

  // Receives all headers and places the tokens. Returns false, to all threads, if the job was aborted. If a rank has
  // reported a fault, or there are more tokens than the capacity, this rank receives none. Parameter row: the first row
  // that this warp receives, if it has arrived; it is loaded while the tokens are placed.
  FLUXCCL_DEVICE bool receiveHeaders(uint32_t epoch, uint4& row) {
    Shared& s = shared();
    const uint32_t length = blockIdx.x == 0 ? headerLength() : RouteArea::kHeaderWords + words_;
    bool going = true;
    visitHeaders(length, [&](uint32_t i, uint32_t at) {
      const int from = peers_.predecessor(1 + i);
      const Ll8Packet* packet = task_.area.header(peers_, peers_.rank, from, epoch) + at;
      uint32_t word = 0;
      going = going && waitUntil(peers_.abort, from, [&] { return packet->tryRead(epoch, word); });
      keepHeader(from, at, word);
    });
    for (uint32_t i = threadIdx.x; i < words_; i += blockDim.x) {
      s.plan.received[peers_.rank * words_ + i] = s.plan.sent[peers_.rank * words_ + i];
    }
    if (!__syncthreads_and(going)) {
      return false;
    }
    const uint32_t first = warpOfLaunch();
    if (first < min(task_.sliceTokens, tokens()) * task_.rows.by * task_.others.by) {
      const int from = peers_.predecessor(1 + task_.others.remainder(first));
      row = Ll128Rows::load(task_.area.row(peers_, peers_.rank, from, epoch, task_.others.quotient(first)), laneId());
    }
    placeTokens();
    if (!s.isWhole) {
      if (blockIdx.x == 0 && threadIdx.x == 0) {
        report(epoch);
      }
      for (uint32_t i = threadIdx.x; i < words_ * peers_.nRanks; i += blockDim.x) {
        s.plan.received[i] = 0;
      }
      __syncthreads();
    }
    if (blockIdx.x == 0) {
      tellCounts();
    }
    return true;
  }

  FLUXCCL_DEVICE void keepHeader(int from, uint32_t at, uint32_t word) {
    Shared& s = shared();
    if (at == 0) {
      s.faults[from] = word;
    } else if (at == 1) {
      s.values[from] = word;
    } else if (at >= RouteArea::kHeaderWords + words_) {
      atomicAdd(&s.received[at - RouteArea::kHeaderWords - words_], word);
    } else if (at >= RouteArea::kHeaderWords) {
      s.plan.received[from * words_ + at - RouteArea::kHeaderWords] = word;
    }
  }

  // By the first warp: where the tokens of each word begin, how many there are, and whether they are to be placed.
  FLUXCCL_DEVICE void placeTokens() {
    Shared& s = shared();
    if (threadIdx.x < kLanes) {
      const uint32_t all = words_ * peers_.nRanks;
      const bool isAtFault = laneId() < static_cast<uint32_t>(peers_.nRanks) &&
                             static_cast<Fault>(s.faults[laneId()]) != Fault::NONE;
      uint32_t total = 0;
      for (uint32_t first = 0; first < all; first += kLanes) {
        const uint32_t word = first + laneId();
        const uint32_t count = word < all ? __popc(s.plan.received[word]) : 0;
        uint32_t before = count;
#pragma unroll
        for (uint32_t step = 1; step < kLanes; step *= 2) {
          const uint32_t more = __shfl_up_sync(kAllLanes, before, step);
          before += laneId() >= step ? more : 0;
        }
        if (word < all) {
          s.plan.places[word] = total + before - count;
        }
        total += __shfl_sync(kAllLanes, before, kLanes - 1);
      }
      const bool isAnyAtFault = __any_sync(kAllLanes, isAtFault);
      if (laneId() == 0) {
        s.total = total;
        s.isWhole = !isAnyAtFault && total <= static_cast<uint32_t>(task_.capacity);
      }
    }
    __syncthreads();
  }

  // Reports to the host why the received tokens are not placed.
  FLUXCCL_DEVICE void report(uint32_t epoch) const {
    const Shared& s = shared();
    bool isAnyAtFault = false;
    for (int from = 0; from < peers_.nRanks; ++from) {
      const Fault fault = static_cast<Fault>(s.faults[from]);
      isAnyAtFault = isAnyAtFault || fault != Fault::NONE;
      // A rank has reported its own fault before.
      if (fault != Fault::NONE && from != peers_.rank) {
        task_.area.report(peers_, epoch, fault, from, s.values[from]);
      }
    }
    if (!isAnyAtFault) {
      task_.area.report(peers_, epoch, Fault::CAPACITY, peers_.rank, s.total);
    }
  }

  // By block 0: writes the outputs with the numbers of tokens, and the plan.
  FLUXCCL_DEVICE void tellCounts() const {
    const Shared& s = shared();
    const int rank = threadIdx.x;
    if (rank < peers_.nRanks) {
      const uint32_t next = rank + 1 < peers_.nRanks ? s.plan.places[(rank + 1) * words_] : s.total;
      task_.perRank[rank] = s.isWhole ? static_cast<int32_t>(next - s.plan.places[rank * words_]) : 0;
    }
    for (uint32_t i = threadIdx.x; i < expertsPerRank(); i += blockDim.x) {
      const uint32_t count = s.received[i] + s.sent[peers_.rank * expertsPerRank() + i];
      task_.perExpert[i] = s.isWhole ? static_cast<int32_t>(count) : 0;
    }
    s.plan.save(task_.plan, words_ * peers_.nRanks);
  }

  // Loads the values of the row that this warp sends first, if the token goes there. They arrive while the ids are
  // read.
  FLUXCCL_DEVICE uint4 firstValues() const {
    const uint32_t row = task_.others.quotient(warpOfLaunch());
    const uint32_t token = task_.rows.quotient(row);
    return token < min(task_.sliceTokens, tokens()) ? rows_.load(token, task_.rows.remainder(row)) : uint4{};
  }

  // first: the values of this warp's first row of the first slice.
  FLUXCCL_DEVICE void send(uint32_t begin, uint32_t count, uint32_t epoch, const uint4& first) const {
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows.by * task_.others.by; i += warpsOfLaunch()) {
      const int peer = peers_.successor(1 + task_.others.remainder(i));
      const uint32_t slotRow = task_.others.quotient(i);
      const uint32_t token = begin + task_.rows.quotient(slotRow);
      const uint32_t row = task_.rows.remainder(slotRow);
      if (RoutePlan::has(shared().plan.sent, words_, peer, token)) {
        const uint4 values = begin == 0 && i == warpOfLaunch() ? first : rows_.load(token, row);
        Ll128Rows::send(task_.area.row(peers_, peer, peers_.rank, epoch, slotRow), laneId(),
                        rows_.forRank(values, row, peer), epoch);
      }
    }
  }

  // first: as for send. With one other rank it is also the first row that this warp keeps.
  FLUXCCL_DEVICE void copyOwn(uint32_t begin, uint32_t count, const uint4& first) const {
    const RoutePlan& plan = shared().plan;
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows.by; i += warpsOfLaunch()) {
      const uint32_t row = task_.rows.remainder(i);
      const uint32_t token = begin + task_.rows.quotient(i);
      if (RoutePlan::has(plan.received, words_, peers_.rank, token)) {
        const bool isFirst = begin == 0 && i == warpOfLaunch() && peers_.nRanks == 2;
        const uint4 values = isFirst ? first : rows_.load(token, row);
        store(peers_.rank, token, row, rows_.forRank(values, row, peers_.rank));
      }
    }
  }

  // arrived: as receiveHeaders() has loaded it.
  FLUXCCL_DEVICE bool receive(uint32_t begin, uint32_t count, uint32_t epoch, const uint4& arrived) const {
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows.by * task_.others.by; i += warpsOfLaunch()) {
      const int from = peers_.predecessor(1 + task_.others.remainder(i));
      const uint32_t row = task_.others.quotient(i);
      const uint32_t token = begin + task_.rows.quotient(row);
      if (RoutePlan::has(shared().plan.received, words_, from, token)) {
        uint4 raw = arrived;
        const bool isFirst = begin == 0 && i == warpOfLaunch();
        if (!(isFirst && isThere<Ll128Rows>(raw, laneId(), epoch)) &&
            !receiveRow<Ll128Rows>(peers_.abort, from, task_.area.row(peers_, peers_.rank, from, epoch, row), laneId(),
                                   epoch, raw)) {
          return false;
        }
        store(from, token, task_.rows.remainder(row), raw);
      }
    }
    return true;
  }

  FLUXCCL_DEVICE void store(int from, uint32_t token, uint32_t row, const uint4& word) const {
    const uint32_t place = shared().plan.place(words_, from, token);
    rows_.store(place, row, word);
    if (row == 0 && laneId() == 0) {
      task_.sources[place] = from * task_.tokens + static_cast<int32_t>(token);
    }
  }

  const MappedPeers& peers_;
  const ExpertTask& task_;
  const TokenRows rows_;
  const uint32_t words_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
