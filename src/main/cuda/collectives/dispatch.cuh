// SPDX-License-Identifier: Apache-2.0
// Dispatch: sends each token once to every rank that has one of its experts. The receiver places the tokens in
// the order of ranks, then of tokens.
//
//   header   fault, value; bits of the tokens that follow; how many tokens each expert of the receiver gets
//   token    values, scales, experts, weights: one behind the other, in rows of packets
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
      : peers_(peers), task_(task.experts), rows_(peers, task), words_(RoutePlan::words(task.experts)) {}

  FLUXCCL_DEVICE void run() {
    uint32_t faulty;
    uint4 values;
    uint32_t epoch = beginEpoch(peers_, [&] {
      faulty = task_.area.faultyEpoch(peers_);
      values = firstValues();
    });
    const uint32_t first = epoch;
    bool going = !RouteArea::hasFailed(faulty, first);
    // Without a branch, so that these loads, too, are in flight together with those.
    readIds(first, going);
    // The headers tell that every peer has begun the launch, so a single slice needs no more than these.
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
  static constexpr int32_t kIdsAtOnce = 8;

  struct Shared {
    RoutePlan plan;
    uint32_t experts[ExpertTask::kMaxExperts];
    uint32_t faults[MappedPeers::kMaxRanks];
    uint32_t values[MappedPeers::kMaxRanks];
    uint32_t total;
    int32_t wrong;
  };

  static FLUXCCL_DEVICE Shared& shared() {
    __shared__ Shared memory;
    return memory;
  }

  FLUXCCL_DEVICE uint32_t tokens() const { return static_cast<uint32_t>(task_.tokens); }
  FLUXCCL_DEVICE int32_t expertsPerRank() const { return task_.experts / peers_.nRanks; }

  // Finds which tokens go to which rank, and sends headers if the launch goes on. If an id is wrong, this rank sends no
  // token.
  FLUXCCL_DEVICE void readIds(uint32_t epoch, bool going) {
    Shared& s = shared();
    for (uint32_t i = threadIdx.x; i < ExpertTask::kMaxExperts && blockIdx.x == 0; i += blockDim.x) {
      s.experts[i] = 0;
    }
    if (threadIdx.x == 0) {
      s.wrong = 0;
    }
    __syncthreads();
    bool isWrong = false;
    for (uint32_t word = threadIdx.x / kLanes; word < words_; word += blockDim.x / kLanes) {
      const uint32_t ranks = ranksOf(word * 32 + laneId(), isWrong);
      for (int rank = 0; rank < peers_.nRanks; ++rank) {
        const uint32_t bits = __ballot_sync(kAllLanes, ranks >> rank & 1);
        if (laneId() == 0) {
          s.plan.sent[rank][word] = bits;
        }
      }
    }
    isWrong = __syncthreads_or(isWrong);
    if (isWrong) {
      for (uint32_t i = threadIdx.x; i < words_ * peers_.nRanks; i += blockDim.x) {
        s.plan.sent[i / words_][i % words_] = 0;
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

  // Returns the ranks of a token's experts, as bits. Block 0 also counts the tokens of each expert.
  FLUXCCL_DEVICE uint32_t ranksOf(uint32_t token, bool& isWrong) {
    uint32_t ranks = 0;
    if (token < tokens()) {
      const int32_t* all = task_.ids + token * task_.topK;
      const uint32_t each = expertsPerRank();
      for (int32_t first = 0; first < task_.topK; first += kIdsAtOnce) {
        // All loads are in flight before the first result is used.
        int32_t ids[kIdsAtOnce];
#pragma unroll
        for (int32_t i = 0; i < kIdsAtOnce; ++i) {
          ids[i] = first + i < task_.topK ? all[first + i] : -1;
        }
#pragma unroll
        for (int32_t i = 0; i < kIdsAtOnce; ++i) {
          const int32_t id = ids[i];
          if (id >= 0 && id < task_.experts) {
            ranks |= 1u << static_cast<uint32_t>(id) / each;
            if (blockIdx.x == 0) {
              atomicAdd(&shared().experts[id], 1u);
            }
          } else if (id != -1) {
            isWrong = true;
            atomicExch(&shared().wrong, id);
          }
        }
      }
    }
    return ranks;
  }

  FLUXCCL_DEVICE uint32_t headerLength() const {
    return RouteArea::kHeaderWords + words_ + expertsPerRank();
  }

  FLUXCCL_DEVICE void sendHeaders(Fault fault, uint32_t epoch) const {
    const Shared& s = shared();
    const uint32_t length = headerLength();
    for (uint32_t i = threadIdx.x; i < length * (peers_.nRanks - 1); i += blockDim.x) {
      const int peer = peers_.ahead(1 + i / length);
      const uint32_t at = i % length;
      uint32_t word = at == 0 ? static_cast<uint32_t>(fault) : at == 1 ? static_cast<uint32_t>(s.wrong) : 0;
      if (at >= RouteArea::kHeaderWords + words_) {
        const uint32_t expert = at - RouteArea::kHeaderWords - words_;
        word = fault == Fault::NONE ? s.experts[peer * expertsPerRank() + expert] : 0;
      } else if (at >= RouteArea::kHeaderWords) {
        word = s.plan.sent[peer][at - RouteArea::kHeaderWords];
      }
      task_.area.header(peers_, peer, peers_.rank, epoch)[at].write(word, epoch);
    }
  }

  // Receives all headers and places the tokens. Returns false, to all threads, if the job was aborted. If a rank
  // is at fault, or there are more tokens than the capacity, this rank receives none.
  // row: the first row that this warp receives, if it has arrived; it is loaded while the tokens are placed.
  FLUXCCL_DEVICE bool receiveHeaders(uint32_t epoch, uint4& row) {
    Shared& s = shared();
    if (blockIdx.x == 0) {
      // All threads have read the counts for the peers.
      __syncthreads();
      keepOwnExperts();
    }
    const uint32_t length = blockIdx.x == 0 ? headerLength() : RouteArea::kHeaderWords + words_;
    bool going = true;
    for (uint32_t i = threadIdx.x; i < length * (peers_.nRanks - 1); i += blockDim.x) {
      const int from = peers_.behind(1 + i / length);
      const uint32_t at = i % length;
      const Ll8Packet* packet = task_.area.header(peers_, peers_.rank, from, epoch) + at;
      uint32_t word = 0;
      going = going && waitUntil(peers_.abort, from, [&] { return packet->tryRead(epoch, word); });
      keepHeader(from, at, word);
    }
    for (uint32_t i = threadIdx.x; i < words_; i += blockDim.x) {
      s.plan.received[peers_.rank][i] = s.plan.sent[peers_.rank][i];
    }
    if (!__syncthreads_and(going)) {
      return false;
    }
    const uint32_t first = warpOfLaunch();
    const uint32_t others = peers_.nRanks - 1;
    if (first < min(task_.sliceTokens, tokens()) * task_.rows * others) {
      row = Ll128Rows::load(task_.area.row(peers_, peers_.rank, peers_.behind(1 + first % others), epoch, first / others),
                            laneId());
    }
    placeTokens();
    const bool isWhole = check(epoch);
    if (!isWhole) {
      for (uint32_t i = threadIdx.x; i < words_ * peers_.nRanks; i += blockDim.x) {
        s.plan.received[i / words_][i % words_] = 0;
      }
      __syncthreads();
    }
    if (blockIdx.x == 0) {
      tellCounts(isWhole);
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
      atomicAdd(&s.experts[at - RouteArea::kHeaderWords - words_], word);
    } else if (at >= RouteArea::kHeaderWords) {
      s.plan.received[from][at - RouteArea::kHeaderWords] = word;
    }
  }

  // Moves the counts of this rank's experts to the beginning, which belongs to rank 0: either to where they are,
  // or to where no count is that this function reads.
  FLUXCCL_DEVICE void keepOwnExperts() {
    Shared& s = shared();
    const bool isWhole = s.faults[peers_.rank] == static_cast<uint32_t>(Fault::NONE);
    for (int32_t i = threadIdx.x; i < expertsPerRank(); i += blockDim.x) {
      s.experts[i] = isWhole ? s.experts[peers_.rank * expertsPerRank() + i] : 0;
    }
    __syncthreads();
  }

  // By the first warp: where the tokens of each word begin, and how many tokens there are.
  FLUXCCL_DEVICE void placeTokens() {
    Shared& s = shared();
    if (threadIdx.x < kLanes) {
      uint32_t total = 0;
      for (int from = 0; from < peers_.nRanks; ++from) {
        for (uint32_t first = 0; first < words_; first += kLanes) {
          const uint32_t word = first + laneId();
          const uint32_t count = word < words_ ? __popc(s.plan.received[from][word]) : 0;
          uint32_t before = count;
#pragma unroll
          for (uint32_t step = 1; step < kLanes; step *= 2) {
            const uint32_t more = __shfl_up_sync(kAllLanes, before, step);
            before += laneId() >= step ? more : 0;
          }
          if (word < words_) {
            s.plan.places[from][word] = total + before - count;
          }
          total += __shfl_sync(kAllLanes, before, kLanes - 1);
        }
      }
      if (laneId() == 0) {
        s.total = total;
      }
    }
    __syncthreads();
  }

  // Returns whether the received tokens are to be placed; reports if not.
  FLUXCCL_DEVICE bool check(uint32_t epoch) const {
    const Shared& s = shared();
    const bool reports = blockIdx.x == 0 && threadIdx.x == 0;
    bool isWhole = true;
    for (int from = 0; from < peers_.nRanks; ++from) {
      const Fault fault = static_cast<Fault>(s.faults[from]);
      if (fault != Fault::NONE) {
        isWhole = false;
        if (reports && from != peers_.rank) {
          task_.area.report(peers_, epoch, fault, from, s.values[from]);
        }
      }
    }
    if (isWhole && s.total > static_cast<uint32_t>(task_.capacity)) {
      isWhole = false;
      if (reports) {
        task_.area.report(peers_, epoch, Fault::CAPACITY, peers_.rank, s.total);
      }
    }
    return isWhole;
  }

  // By block 0: the outputs that say how many tokens there are, and the plan.
  FLUXCCL_DEVICE void tellCounts(bool isWhole) const {
    const Shared& s = shared();
    const uint32_t rank = threadIdx.x;
    if (rank < static_cast<uint32_t>(peers_.nRanks)) {
      const uint32_t next = rank + 1 < static_cast<uint32_t>(peers_.nRanks) ? s.plan.places[rank + 1][0] : s.total;
      task_.perRank[rank] = isWhole ? static_cast<int32_t>(next - s.plan.places[rank][0]) : 0;
    }
    for (int32_t i = threadIdx.x; i < expertsPerRank(); i += blockDim.x) {
      task_.perExpert[i] = isWhole ? static_cast<int32_t>(s.experts[i]) : 0;
    }
    s.plan.save(task_.plan, words_, peers_.nRanks);
  }

  // Loads the values of the row that this warp sends first, if the token goes there. They arrive while the ids are
  // read.
  FLUXCCL_DEVICE uint4 firstValues() const {
    const uint32_t row = warpOfLaunch() / (peers_.nRanks - 1);
    const uint32_t token = row / task_.rows;
    return token < min(task_.sliceTokens, tokens()) ? rows_.valuesOf(token, row % task_.rows) : uint4{};
  }

  // first: the values of this warp's first row of the first slice.
  FLUXCCL_DEVICE void send(uint32_t begin, uint32_t count, uint32_t epoch, const uint4& first) const {
    const uint32_t others = peers_.nRanks - 1;
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows * others; i += warpsOfLaunch()) {
      const int peer = peers_.ahead(1 + i % others);
      const uint32_t row = i / others;
      const uint32_t token = begin + row / task_.rows;
      if (RoutePlan::has(shared().plan.sent, peer, token)) {
        const uint4 values =
            begin == 0 && i == warpOfLaunch() ? first : rows_.valuesOf(token, row % task_.rows);
        Ll128Rows::send(task_.area.row(peers_, peer, peers_.rank, epoch, row), laneId(),
                        rows_.completed(values, token, row % task_.rows, peer), epoch);
      }
    }
  }

  // first: as for send. With one other rank it is also the first row that this warp keeps.
  FLUXCCL_DEVICE void copyOwn(uint32_t begin, uint32_t count, const uint4& first) const {
    const RoutePlan& plan = shared().plan;
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows; i += warpsOfLaunch()) {
      const uint32_t row = i % task_.rows;
      const uint32_t token = begin + i / task_.rows;
      if (RoutePlan::has(plan.received, peers_.rank, token)) {
        const bool isFirst = begin == 0 && i == warpOfLaunch() && peers_.nRanks == 2;
        const uint4 values = isFirst ? first : rows_.valuesOf(token, row);
        store(peers_.rank, token, row, rows_.completed(values, token, row, peers_.rank));
      }
    }
  }

  // arrived: as receiveHeaders() has loaded it.
  FLUXCCL_DEVICE bool receive(uint32_t begin, uint32_t count, uint32_t epoch, const uint4& arrived) const {
    const uint32_t others = peers_.nRanks - 1;
    for (uint32_t i = warpOfLaunch(); i < count * task_.rows * others; i += warpsOfLaunch()) {
      const int from = peers_.behind(1 + i % others);
      const uint32_t row = i / others;
      const uint32_t token = begin + row / task_.rows;
      if (RoutePlan::has(shared().plan.received, from, token)) {
        uint4 raw = arrived;
        const bool isFirst = begin == 0 && i == warpOfLaunch();
        if (!(isFirst && isThere<Ll128Rows>(raw, laneId(), epoch)) &&
            !receiveRow<Ll128Rows>(peers_.abort, from, task_.area.row(peers_, peers_.rank, from, epoch, row), laneId(),
                                   epoch, raw)) {
          return false;
        }
        store(from, token, row % task_.rows, raw);
      }
    }
    return true;
  }

  FLUXCCL_DEVICE void store(int from, uint32_t token, uint32_t row, const uint4& word) const {
    const uint32_t place = shared().plan.place(from, token);
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
