// SPDX-License-Identifier: Apache-2.0
// All-reduce of rows with the epilogue AddRmsNorm, in launches of small blocks whose warps work on their own.
//
//   one shot    each rank sends its rows to all ranks; each adds up all rows
//   two shots   row i is added up by its owner, rank i modulo the number of ranks, which sends the new residual row
//               to all ranks
//
// A warp handles items: one group of 32 words of 16 bytes, of one row or of one row of each owner. Rows are sent in
// sentinel packets. A norm needs the sum of squares of the whole row. Each group's sum is an LL8 packet, a value, which
// all warps of the row receive: in two shots from the owner, otherwise from this rank. Values are folded in the order
// that reduced_row.cuh describes, so results do not depend on the algorithm.
//
//   area     [2 sets][2 phases][nRanks] slots of slotBytes: packets for the owner; packets from the owner
//   values   [2 sets][2 kinds][nRanks owners] slots of slotBytes / 64: sums of squares; largest magnitudes
//
// Of two ranks, launches of more than a few rows have a block for each row instead: its warps exchange values in shared
// memory, and fewer blocks begin sooner.
//
// A launch has at least as many warps as a row has groups, so no warp has two groups of a row, and a warp that waits
// for values waits for warps that have sent them or work on earlier rows.
//
// These kernels run for a few microseconds, once through: what counts is how few instructions there are.
#pragma once

#include "add_rms_norm.cuh"
#include "packet_rows.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.FusedReduce.NormTask.
struct NormTask {
  // Areas in the states of the ranks from this one on, as mapped here: of rank (rank + k) % nRanks.
  uint8_t* areas[MappedPeers::kMaxRanks];
  const uint4* input;
  // MappedPeers' epochs of this rank.
  uint32_t* epochs;
  AbortFlag* abort;
  uint32_t slotBytes;
  int32_t rank;
  int32_t nRanks;
  uint32_t rows;
  // Words of a row, and 1 / its elements.
  uint32_t words;
  float perElement;
};
FLUXCCL_ASSERT_OFFSET(NormTask, slotBytes, 152);
FLUXCCL_ASSERT_SIZE(NormTask, 176);

#if defined(FLUXCCL_CUDA)

FLUXCCL_DEVICE float sumOfLanes(float value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

FLUXCCL_DEVICE float largestOfLanes(float value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// Adds the values of 32 groups, one a lane, to a lane's part of the sum of a row.
struct AddValues {
  static FLUXCCL_DEVICE float fold(float sum, float value) {
    value = __fadd_rn(value, __shfl_xor_sync(kAllLanes, value, 1));
    return __fadd_rn(sum, __fadd_rn(value, __shfl_xor_sync(kAllLanes, value, 2)));
  }
  static FLUXCCL_DEVICE float total(float sum) {
#pragma unroll
    for (int offset = 16; offset >= 4; offset /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, offset));
    }
    return sum;
  }
};

struct LargestValue {
  static FLUXCCL_DEVICE float fold(float most, float value) { return fmaxf(most, value); }
  static FLUXCCL_DEVICE float total(float most) { return largestOfLanes(most); }
};

// Waits for rows of packets, one bit of wanted for each, which begin `stride` bytes apart. The first one is of rank
// `from`, the next one of from + step. Returns false if the job was aborted. Not a member: all members would have to be
// in memory.
template <class Rows>
FLUXCCL_DEVICE_CALL bool awaitRows(AbortFlag* abort, int from, int step, uint32_t wanted, const uint8_t* rows,
                                   uint32_t stride, uint32_t lane, uint32_t epoch) {
  for (int i = 0; wanted >> i != 0; ++i) {
    if ((wanted >> i & 1) && !awaitRow<Rows>(abort, from + i * step, rows + i * stride, lane, epoch)) {
      return false;
    }
  }
  return true;
}

// kRanks: the number of ranks, or 0 for any. kQuantizes: whether there is a quantised output.
template <typename T, int kRanks, bool kQuantizes>
class NormRows {
 public:
  FLUXCCL_DEVICE NormRows(const NormTask& task, const AddRmsNorm& norm)
      : task_(task),
        norm_(norm),
        groups_((task.words + kLanes - 1) / kLanes),
        lane_(threadIdx.x % kLanes),
        warps_(gridDim.x * (blockDim.x / kLanes)),
        start_(itemOf(blockIdx.x * (blockDim.x / kLanes) + threadIdx.x / kLanes)) {
    awaitLaunchBefore();
    letNextLaunchBegin();
    // The first loads of the input are under way before this one has ended.
    epoch_ = epochAfter(lastEpoch(task.epochs));
  }

  FLUXCCL_DEVICE void oneShot() {
    const uint32_t items = task_.rows * groups_;
    uint4 word;
    forEachItem(items, [&](const Item& item) {
      word = input(item.set, item.group);
#pragma unroll kUnrolled
      for (int k = 1; k < nRanks(); ++k) {
        send(k, kScatter, item, word);
      }
    });
    bool arrived = true;
    forEachItem(items, [&](const Item& item) {
      if (items > warps_) {
        word = input(item.set, item.group);
      }
      const uint4 residual = at(norm_.residual, item.set, item.group);
      const uint4 weight = at(norm_.weight, 0, item.group);
      arrived = arrived && add(item, word);
      uint4 words[1] = {Rows::asSent(addWords<T>(word, residual))};
      keep(item.set, item.group, words[0]);
      sendValue(0, kSums, task_.rank, item, sumOfLanes(AddRmsNorm::squares<T>(words[0])));
      Values<1> sums;
      arrived = arrived && receiveValues<AddValues>(1, kSums, task_.rank, item, sums);
      finish(1, item.set, item, task_.rank, weight, sums, words, arrived);
    });
    endEpoch(task_.epochs, epoch_, __syncthreads_and(arrived));
  }

  // One shot of two ranks, with a row for each block at a time. kWords: groups of a warp; a row has 32 at most.
  template <int kWords>
  FLUXCCL_DEVICE void oneShotOfBlocks() {
    __shared__ float values[2][kKinds][kLanes];
    const uint32_t warps = blockDim.x / kLanes;
    const uint32_t warp = threadIdx.x / kLanes;
    const int peer = 1 - task_.rank;
    uint32_t present = 0;  // a bit for each of this warp's groups that rows have
    uint4 words[kWords];
    const auto load = [&](uint32_t row) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        words[k] = input(row, warp + k * warps);
      }
    };
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      present |= warp + k * warps < groups_ ? 1u << k : 0;
    }
#pragma unroll 1
    for (uint32_t row = blockIdx.x; row < task_.rows; row += gridDim.x) {
      load(row);
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        if (present >> k & 1) {
          send(1, kScatter, Item{row * groups_ + warp + k * warps, row, warp + k * warps}, words[k]);
        }
      }
    }
    bool arrived = true;
    uint32_t turn = 0;
#pragma unroll 1
    for (uint32_t row = blockIdx.x; row < task_.rows; row += gridDim.x, turn ^= 1) {
      if (task_.rows > gridDim.x) {
        load(row);
      }
      uint4 residual[kWords];
      uint4 weight[kWords];
      uint4 theirs[kWords];
      float own[kWords];
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        residual[k] = at(norm_.residual, row, warp + k * warps);
        theirs[k] = words[k];
      }
      uint4* const packets = inbound(kScatter, peer, Item{row * groups_ + warp, row, warp});
      arrived = arrived && receive(packets, warps * Rows::kSize, peer, 0, present, theirs);
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        weight[k] = at(norm_.weight, 0, warp + k * warps);
        const uint4 sum = task_.rank == 0 ? addWords<T>(words[k], theirs[k]) : addWords<T>(theirs[k], words[k]);
        words[k] = Rows::asSent(addWords<T>(Rows::asSent(sum), residual[k]));
        keep(row, warp + k * warps, words[k]);
        own[k] = sumOfLanes(AddRmsNorm::squares<T>(words[k]));
      }
      const float sum = foldInBlock<AddValues>(values[turn][kSums], own);
      const float scale = norm_.scale(__fmul_rn(sum, task_.perElement));
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        words[k] = norm_.normed<T>(words[k], weight[k], scale);
        if (norm_.normOut != nullptr && has(warp + k * warps)) {
          norm_.normOut[index(row, warp + k * warps)] = words[k];
        }
      }
      if (kQuantizes) {
        float inverse = norm_.inverseScale;
        if (norm_.scales != nullptr) {
#pragma unroll
          for (int k = 0; k < kWords; ++k) {
            own[k] = largestOfLanes(has(warp + k * warps) ? AddRmsNorm::largest<T>(words[k]) : 0);
          }
          const float ofRow = AddRmsNorm::scaleOf(foldInBlock<LargestValue>(values[turn][kLargest], own));
          if (threadIdx.x == 0) {
            norm_.scales[row] = ofRow;
          }
          inverse = 1 / ofRow;
        }
#pragma unroll
        for (int k = 0; k < kWords; ++k) {
          if (has(warp + k * warps)) {
            norm_.quantize<T>(index(row, warp + k * warps), words[k], inverse);
          }
        }
      }
    }
    endEpoch(task_.epochs, epoch_, __syncthreads_and(arrived));
  }

  // There are at least as many rows as ranks: so every rank receives something from every peer.
  FLUXCCL_DEVICE void twoShots() {
    const uint32_t items = (task_.rows + nRanks() - 1) / nRanks() * groups_;
    forEachItem(items, [&](const Item& item) { scatter(item); });
    bool arrived = true;
    forEachItem(items, [&](const Item& item) {
      if (item.set * nRanks() + task_.rank < task_.rows) {
        arrived = reduce(item, arrived);
      }
    });
    forEachItem(items, [&](const Item& item) {
#pragma unroll 1
      for (int first = 0; first < nRanks(); first += kAtOnce) {
        arrived = gather(item, first, arrived);
      }
    });
    endEpoch(task_.epochs, epoch_, __syncthreads_and(arrived));
  }

 private:
  using Rows = SentinelRows<sizeof(T)>;

  // A group of a row, or of a set of one row of each owner.
  struct Item {
    uint32_t index;
    uint32_t set;
    uint32_t group;
  };

  enum Phase { kScatter, kGather, kPhases };
  enum Kind { kSums, kLargest, kKinds };

  // Number of ranks whose packets a warp polls at once.
  static constexpr int kAtOnce = kRanks > 0 ? kRanks : 4;
  static constexpr int kUnrolled = kRanks > 0 ? kRanks : 1;

  FLUXCCL_DEVICE int nRanks() const { return kRanks > 0 ? kRanks : task_.nRanks; }

  FLUXCCL_DEVICE Item itemOf(uint32_t index) const {
    Item item;
    item.index = index;
    item.set = index / groups_;
    item.group = index - item.set * groups_;
    return item;
  }

  // Calls f(item) for each item of this warp. Divides only if there is another one: it takes a tenth of a microsecond.
  template <class F>
  FLUXCCL_DEVICE void forEachItem(uint32_t items, F f) const {
    Item item = start_;
#pragma unroll 1
    while (item.index < items) {
      f(item);
      item.index += warps_;
      if (item.index < items) {
        item = itemOf(item.index);
      }
    }
  }

  FLUXCCL_DEVICE bool has(uint32_t group) const { return group * kLanes + lane_ < task_.words; }

  FLUXCCL_DEVICE uint64_t index(uint32_t row, uint32_t group) const {
    return static_cast<uint64_t>(row) * task_.words + group * kLanes + lane_;
  }

  FLUXCCL_DEVICE uint4 at(const uint4* rows, uint32_t row, uint32_t group) const {
    return has(group) ? rows[index(row, group)] : make_uint4(0, 0, 0, 0);
  }

  FLUXCCL_DEVICE uint4 input(uint32_t row, uint32_t group) const { return Rows::asSent(at(task_.input, row, group)); }

  // Offset in an area of this lane's packet of an item, in the slot of rank `from`.
  FLUXCCL_DEVICE uint32_t packet(Phase phase, int from, const Item& item) const {
    return (((epoch_ & 1) * kPhases + phase) * nRanks() + from) * task_.slotBytes + item.index * Rows::kSize +
           lane_ * static_cast<uint32_t>(sizeof(uint4));
  }

  FLUXCCL_DEVICE uint4* inbound(Phase phase, int from, const Item& item) const {
    return reinterpret_cast<uint4*>(task_.areas[0] + packet(phase, from, item));
  }

  FLUXCCL_DEVICE void send(int k, Phase phase, const Item& item, const uint4& word) const {
    storeRelaxedSys(reinterpret_cast<uint4*>(task_.areas[k] + packet(phase, task_.rank, item)), word);
  }

  // Offset in an area of the value of an item of an owner.
  FLUXCCL_DEVICE uint64_t value(Kind kind, int owner, uint32_t item) const {
    const uint32_t slot = ((epoch_ & 1) * kKinds + kind) * nRanks() + owner;
    return static_cast<uint64_t>(2 * kPhases * nRanks()) * task_.slotBytes + slot * (task_.slotBytes / 64) +
           item * static_cast<uint32_t>(sizeof(uint64_t));
  }

  FLUXCCL_DEVICE void sendValue(int k, Kind kind, int owner, const Item& item, float sum) const {
    if (lane_ == 0) {
      Ll8Rows::send(task_.areas[k] + value(kind, owner, item.index), 0, __float_as_uint(sum), epoch_);
    }
  }

  FLUXCCL_DEVICE void scatter(const Item& item) const {
#pragma unroll 1
    for (int first = 1; first < nRanks(); first += kAtOnce) {
      uint4 words[kAtOnce];
      uint32_t rows[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int k = first + i;
        const int owner = task_.rank + k < nRanks() ? task_.rank + k : task_.rank + k - nRanks();
        rows[i] = k < nRanks() ? item.set * nRanks() + owner : task_.rows;
        if (rows[i] < task_.rows) {
          words[i] = input(rows[i], item.group);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (rows[i] < task_.rows) {
          send(first + i, kScatter, item, words[i]);
        }
      }
    }
  }

  // Receives the packets of ranks `first`, ...
  FLUXCCL_DEVICE bool receive(Phase phase, int first, const Item& item, uint32_t wanted,
                              uint4 (&words)[kAtOnce]) const {
    return receive(inbound(phase, first, item), task_.slotBytes, first, 1, wanted, words);
  }

  // Waits until packets `stride` bytes apart have arrived; wanted has one bit for each. The first one is of rank
  // `from`, the next one of from + step. Other words must be no sentinels. Empties the packets. Returns false if the
  // job was aborted.
  template <int kCount>
  FLUXCCL_DEVICE bool receive(uint4* packets, uint32_t stride, int from, int step, uint32_t wanted,
                              uint4 (&words)[kCount]) const {
    const auto packet = [&](int i) {
      return reinterpret_cast<uint4*>(reinterpret_cast<uint8_t*>(packets) + i * stride);
    };
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (wanted >> i & 1) {
        words[i] = loadRelaxedSys(packet(i));
      }
    }
    int round = 0;
    while (true) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (!Rows::hasArrived(words[i], lane_, epoch_)) {
          all = false;
          words[i] = loadRelaxedSys(packet(i));
        }
      }
      // The warp continues together: lanes that left one by one would spin on the next packet and delay the others.
      if (__all_sync(kAllLanes, all)) {
        break;
      }
      if (++round >= kRoundsBeforeLooking &&
          !awaitRows<Rows>(task_.abort, from, step, wanted, reinterpret_cast<uint8_t*>(packets - lane_), stride, lane_,
                           epoch_)) {
        return false;
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (wanted >> i & 1) {
        storeRelaxedSys(packet(i), make_uint4(~0u, ~0u, ~0u, ~0u));
      }
    }
    return true;
  }

  // Folds the values of a block's groups, of which a warp has some.
  template <class Fold, int kWords>
  FLUXCCL_DEVICE float foldInBlock(float (&values)[kLanes], const float (&own)[kWords]) const {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      const uint32_t group = threadIdx.x / kLanes + k * (blockDim.x / kLanes);
      if (lane_ == 0 && group < groups_) {
        values[group] = own[k];
      }
    }
    __syncthreads();
    return Fold::total(Fold::fold(0, lane_ < groups_ ? values[lane_] : 0));
  }

  // Replaces this rank's word of an item by the sum of all ranks. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool add(const Item& item, uint4& word) const {
    [[maybe_unused]] Accumulator<T, uint4> values;
    uint4 sum;
#pragma unroll 1
    for (int first = 0; first < nRanks(); first += kAtOnce) {
      uint32_t wanted = 0;
      uint4 words[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        words[i] = word;
        wanted |= first + i < nRanks() && first + i != task_.rank ? 1u << i : 0;
      }
      if (!receive(kScatter, first, item, wanted, words)) {
        return false;
      }
      if constexpr (kRanks == 2) {
        sum = Rows::asSent(addWords<T>(words[0], words[1]));
      } else {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i == 0) {
            values.begin(words[i]);
          } else if (first + i < nRanks()) {
            values.add(words[i]);
          }
        }
        sum = Rows::asSent(values.finish(ReduceOp::SUM, nRanks()));
      }
    }
    word = sum;
    return true;
  }

  FLUXCCL_DEVICE void keep(uint32_t row, uint32_t group, const uint4& word) const {
    if (norm_.residualOut != nullptr && has(group)) {
      norm_.residualOut[index(row, group)] = word;
    }
  }

  // Adds up this rank's row of a set, and sends the new residual row. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool reduce(const Item& item, bool arrived) const {
    const uint32_t row = item.set * nRanks() + task_.rank;
    uint4 word = input(row, item.group);
    const uint4 residual = at(norm_.residual, row, item.group);
    arrived = arrived && add(item, word);
    word = Rows::asSent(addWords<T>(word, residual));
    // Also to this rank: so its own row takes the same way as the others.
#pragma unroll kUnrolled
    for (int k = 0; k < nRanks(); ++k) {
      send(k, kGather, item, word);
    }
    const float sum = sumOfLanes(AddRmsNorm::squares<T>(word));
#pragma unroll kUnrolled
    for (int k = 0; k < nRanks(); ++k) {
      sendValue(k, kSums, task_.rank, item, sum);
    }
    return arrived;
  }

  // Receives a group of rows of the owners from `first` on, and finishes them. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool gather(const Item& item, int first, bool arrived) const {
    const uint32_t firstRow = item.set * nRanks() + first;
    uint32_t wanted = 0;
    uint4 words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      words[i] = make_uint4(0, 0, 0, 0);
      wanted |= first + i < nRanks() && firstRow + i < task_.rows ? 1u << i : 0;
    }
    const uint4 weight = at(norm_.weight, 0, item.group);
    arrived = arrived && receive(kGather, first, item, wanted, words);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (wanted >> i & 1) {
        keep(firstRow + i, item.group, words[i]);
      }
    }
    Values<kAtOnce> sums;
    arrived = arrived && receiveValues<AddValues>(wanted, kSums, first, item, sums);
    finish(wanted, firstRow, item, first, weight, sums, words, arrived);
    return arrived;
  }

  template <int kCount>
  struct Values {
    float of[kCount];
  };

  // Receives the values of rows of neighbouring owners, and folds them.
  template <class Fold, int kCount>
  FLUXCCL_DEVICE bool receiveValues(uint32_t wanted, Kind kind, int owner, const Item& item,
                                    Values<kCount>& results) const {
    const uint32_t firstItem = item.index - item.group;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      results.of[i] = 0;
    }
#pragma unroll 1
    for (uint32_t first = 0; first < groups_; first += kLanes) {
      const uint8_t* values = task_.areas[0] + value(kind, owner, firstItem + first);
      const uint32_t count = min(groups_ - first, kLanes);
      const auto load = [&](int i, uint32_t lane) {
        return Ll8Rows::load(values + i * (task_.slotBytes / 64), lane);
      };
      // Lanes without a group have a value of zero.
      const uint32_t last = lane_ < count ? wanted : 0;
      uint64_t raws[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        raws[i] = last >> i & 1 ? load(i, lane_) : static_cast<uint64_t>(epoch_) << 32;
      }
      int round = 0;
      while (true) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if (!Ll8Rows::hasArrived(raws[i], lane_, epoch_)) {
            all = false;
            raws[i] = load(i, lane_);
          }
        }
        if (__all_sync(kAllLanes, all)) {
          break;
        }
        if (++round >= kRoundsBeforeLooking &&
            !awaitRows<Ll8Rows>(task_.abort, owner, 1, wanted, values, task_.slotBytes / 64, min(lane_, count - 1),
                                epoch_)) {
          return false;
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        results.of[i] = Fold::fold(results.of[i], __uint_as_float(Ll8Rows::wordOf(raws[i])));
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      results.of[i] = Fold::total(results.of[i]);
    }
    return true;
  }

  // Norms a group of rows. Parameters firstRow, owner: of the first row.
  template <int kCount>
  FLUXCCL_DEVICE void finish(uint32_t wanted, uint32_t firstRow, const Item& item, int owner, const uint4& weight,
                             const Values<kCount>& sums, uint4 (&words)[kCount], bool& arrived) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      words[i] = norm_.normed<T>(words[i], weight, norm_.scale(__fmul_rn(sums.of[i], task_.perElement)));
      if (wanted >> i & 1 && norm_.normOut != nullptr && has(item.group)) {
        norm_.normOut[index(firstRow + i, item.group)] = words[i];
      }
    }
    if (kQuantizes) {
      quantize(wanted, firstRow, item, owner, words, arrived);
    }
  }

  template <int kCount>
  FLUXCCL_DEVICE void quantize(uint32_t wanted, uint32_t firstRow, const Item& item, int owner,
                               const uint4 (&words)[kCount], bool& arrived) const {
    Values<kCount> largest;
    if (norm_.scales != nullptr) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (wanted >> i & 1) {
          const float most = largestOfLanes(has(item.group) ? AddRmsNorm::largest<T>(words[i]) : 0);
          sendValue(0, kLargest, owner + i, item, most);
        }
      }
      arrived = arrived && receiveValues<LargestValue>(wanted, kLargest, owner, item, largest);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (wanted >> i & 1) {
        float inverse = norm_.inverseScale;
        if (norm_.scales != nullptr) {
          const float scale = AddRmsNorm::scaleOf(largest.of[i]);
          if (item.group == 0 && lane_ == 0) {
            norm_.scales[firstRow + i] = scale;
          }
          inverse = 1 / scale;
        }
        if (has(item.group)) {
          norm_.quantize<T>(index(firstRow + i, item.group), words[i], inverse);
        }
      }
    }
  }

  const NormTask& task_;
  const AddRmsNorm& norm_;
  const uint32_t groups_;
  const uint32_t lane_;
  const uint32_t warps_;
  const Item start_;
  uint32_t epoch_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
