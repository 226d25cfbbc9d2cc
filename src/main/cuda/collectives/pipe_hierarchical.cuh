// SPDX-License-Identifier: Apache-2.0
// Common parts of hierarchical collectives: the places of ranks, and the exchange of pieces with the ranks of
// the host and of the rail. Twin of Hierarchy and HierarchicalSchedule.
#pragma once

#include "pipe.cuh"
#include "pipe_reduction.cuh"

namespace fluxccl {
namespace collectives {
namespace pipes {

// The ordinals of io.fluxccl.DataType, for the types that hierarchical collectives reduce.
enum class DataType : int32_t { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 };

// Each rank has a place on its host. Ranks with the same place are a rail. Written by GpuAlgorithms.
struct Hierarchy {
  int32_t nLocal;
  int32_t localIndex;
  int32_t hosts;
  int32_t host;
  // Five tables: the local ranks; the rail's rank of each host; for each rank its place on this host, or -1;
  // for each rank its host on this rail, or -1; all ranks, host by host.
  const int32_t* ranks;

  FLUXCCL_DEVICE const int32_t* locals() const { return ranks; }
  FLUXCCL_DEVICE const int32_t* rail() const { return ranks + nLocal; }
  FLUXCCL_DEVICE int localRank(int place) const { return locals()[place]; }
  FLUXCCL_DEVICE int railRank(int onHost) const { return rail()[onHost]; }
  // Returns -1 if the rank is not on this host.
  FLUXCCL_DEVICE int placeOf(int rank) const { return ranks[nLocal + hosts + rank]; }
  // Returns -1 if the rank is not on this rail.
  FLUXCCL_DEVICE int hostOf(int rank) const { return ranks[nLocal + hosts + hosts * nLocal + rank]; }
  FLUXCCL_DEVICE int rank(int onHost, int place) const {
    return ranks[nLocal + hosts + 2 * hosts * nLocal + onHost * nLocal + place];
  }

  // Return the place, and the host, that is `distance` after this rank's.
  FLUXCCL_DEVICE int otherPlace(int distance) const { return (localIndex + distance) % nLocal; }
  FLUXCCL_DEVICE int otherHost(int distance) const { return (host + distance) % hosts; }
};
FLUXCCL_ASSERT_SIZE(Hierarchy, 24);

// Written by GpuAlgorithms.
struct HierarchyPlan {
  Pipe* pipes;
  Layout layout;
  int32_t rank;
  int32_t nRanks;
  // Null if this rank has none.
  const uint8_t* input;
  uint8_t* output;
  // Bytes of the whole buffer, or of each rank's share.
  uint64_t size;
  // Bytes of a part; there are as many parts as local ranks.
  uint64_t stride;
  DataType type;
  ReduceOp op;
  // Whether an all-reduce splits its pieces into parts between hosts.
  int32_t split;
  int32_t rootHost;
  int32_t rootPlace;
  int32_t reserved;
  Hierarchy hierarchy;

  FLUXCCL_DEVICE uint64_t begin(int part) const { return min(size, stride * part); }
  FLUXCCL_DEVICE uint64_t bytes(int part) const { return min(stride, size - begin(part)); }
  FLUXCCL_DEVICE const uint8_t* inputOf(int of) const { return input + of * size; }
  FLUXCCL_DEVICE uint8_t* outputOf(int of) const { return output + of * size; }
};
FLUXCCL_ASSERT_OFFSET(HierarchyPlan, input, 24);
FLUXCCL_ASSERT_OFFSET(HierarchyPlan, type, 56);
FLUXCCL_ASSERT_OFFSET(HierarchyPlan, hierarchy, 80);
FLUXCCL_ASSERT_SIZE(HierarchyPlan, 104);

// The addresses of the pieces that a block has taken from each rank of a list, and of this rank's own piece.
struct Sources {
  const Slots& slots;
  const int32_t* ranks;
  int own;
  const uint8_t* at;
  // One more rank after the list; negative for none.
  int32_t further;
  int count;

  FLUXCCL_DEVICE const uint8_t* operator()(int i) const {
    return i == own ? at : slots.in[i == count ? further : ranks[i]];
  }
};

template <typename T>
FLUXCCL_DEVICE_CALL void combineElements(const Sources& sources, uint8_t* to, uint64_t bytes, ReduceOp op,
                                       int divisor) {
  reducePiece<T>(bytes, addressOf(sources.at) | addressOf(to), op, divisor,
                 sources.count + (sources.further < 0 ? 0 : 1), sources, 1, [&](int) { return to; });
}

// Combines the sources, in their order, into one target. The type is selected for each piece, because kernels
// for each type would consist mostly of the same code.
FLUXCCL_DEVICE void combine(const Sources& sources, uint8_t* to, uint64_t bytes, DataType type, ReduceOp op,
                            int divisor) {
  switch (type) {
    case DataType::INT8:
      return combineElements<signed char>(sources, to, bytes, op, divisor);
    case DataType::UINT8:
      return combineElements<uint8_t>(sources, to, bytes, op, divisor);
    case DataType::INT32:
      return combineElements<int32_t>(sources, to, bytes, op, divisor);
    case DataType::UINT32:
      return combineElements<uint32_t>(sources, to, bytes, op, divisor);
    case DataType::INT64:
      return combineElements<int64_t>(sources, to, bytes, op, divisor);
    case DataType::UINT64:
      return combineElements<uint64_t>(sources, to, bytes, op, divisor);
    case DataType::FLOAT16:
      return combineElements<Half>(sources, to, bytes, op, divisor);
    case DataType::FLOAT32:
      return combineElements<float>(sources, to, bytes, op, divisor);
    case DataType::FLOAT64:
      return combineElements<double>(sources, to, bytes, op, divisor);
    case DataType::BFLOAT16:
      return combineElements<Bfloat16>(sources, to, bytes, op, divisor);
  }
}

// A block's share of a hierarchical collective, which it cuts into pieces. Methods return false, to all
// threads, if the communicator was aborted.
class HierarchicalLane {
 protected:
  FLUXCCL_DEVICE HierarchicalLane(const HierarchyPlan& plan, Slots& slots)
      : plan_(plan), who_(plan.hierarchy), slots_(slots), lane_(plan.pipes, plan.rank, plan.nRanks, slots) {}

  // Cuts this lane's share of `bytes` into pieces of at most `most` bytes. Returns the number of pieces.
  FLUXCCL_DEVICE int64_t cut(uint64_t bytes, uint64_t most) {
    const uint64_t share = plan_.layout.length(bytes);
    begin_ = plan_.layout.begin(bytes);
    end_ = begin_ + share;
    piece_ = min(most, plan_.layout.piece(share));
    pieces_ = static_cast<int64_t>((share + piece_ - 1) / piece_);
    return pieces_;
  }

  FLUXCCL_DEVICE uint64_t at(int64_t number) const { return begin_ + number * piece_; }

  // Returns the bytes of a piece in a buffer of `bytes`, which is as long as the one that was cut, or
  // shorter; 0 if there is no such piece.
  FLUXCCL_DEVICE uint64_t length(int64_t number, uint64_t bytes) const {
    const uint64_t end = min(end_, bytes);
    return number < 0 || number >= pieces_ || at(number) >= end ? 0 : min(piece_, end - at(number));
  }

  FLUXCCL_DEVICE auto locals() const {
    return [this](int rank) { return who_.placeOf(rank) >= 0; };
  }

  FLUXCCL_DEVICE auto rail() const {
    return [this](int rank) { return who_.hostOf(rank) >= 0; };
  }

  FLUXCCL_DEVICE static auto only(int one) {
    return [one](int rank) { return rank == one; };
  }

  // Sends the same number of bytes to each rank for which wants(rank) is true.
  template <typename Wants>
  FLUXCCL_DEVICE void publish(Wants wants, uint64_t bytes) {
    lane_.publish([&](int rank) { return wants(rank) ? static_cast<int64_t>(bytes) : -1; });
  }

  // Sends each local rank the first bytesOf(place) bytes from fromOf(place), or nothing.
  template <typename BytesOf, typename FromOf>
  FLUXCCL_DEVICE bool giveLocals(BytesOf bytesOf, FromOf fromOf) {
    const auto wants = wantsOf(bytesOf);
    if (!lane_.claim(wants)) {
      return false;
    }
    for (int i = 1; i < who_.nLocal; ++i) {
      const int place = who_.otherPlace(i);
      copySome(lane_.out(who_.localRank(place)), fromOf(place), bytesOf(place));
    }
    lane_.publish([&](int rank) {
      return wants(rank) ? static_cast<int64_t>(bytesOf(who_.placeOf(rank))) : -1;
    });
    return true;
  }

  // Receives what giveLocals sent, to toOf(place).
  template <typename BytesOf, typename ToOf>
  FLUXCCL_DEVICE bool takeLocals(BytesOf bytesOf, ToOf toOf) {
    const auto wants = wantsOf(bytesOf);
    if (!lane_.take(wants)) {
      return false;
    }
    for (int i = 1; i < who_.nLocal; ++i) {
      const int place = who_.otherPlace(who_.nLocal - i);
      copySome(toOf(place), lane_.in(who_.localRank(place)), bytesOf(place));
    }
    lane_.release(wants);
    return true;
  }

  // Sends a piece to the local ranks except `but`, and to `next`, a rank of another host; negative for none.
  FLUXCCL_DEVICE bool giveOn(const uint8_t* from, uint64_t bytes, int but, int next) {
    const auto wants = [&](int rank) { return rank == next || (who_.placeOf(rank) >= 0 && rank != but); };
    if (!lane_.claim(wants)) {
      return false;
    }
    if (next >= 0) {
      copyBlock(lane_.out(next), from, bytes);
    }
    for (int i = 1; i < who_.nLocal; ++i) {
      const int rank = who_.localRank(who_.otherPlace(i));
      if (rank != but) {
        copyBlock(lane_.out(rank), from, bytes);
      }
    }
    publish(wants, bytes);
    return true;
  }

  // Receives a rank's piece, stores it and forwards it.
  FLUXCCL_DEVICE bool takeAndGiveOn(int source, uint8_t* to, uint64_t bytes, int but, int next) {
    if (!lane_.take(only(source))) {
      return false;
    }
    const uint8_t* piece = lane_.in(source);
    copyBlock(to, piece, bytes);
    if (!giveOn(piece, bytes, but, next)) {
      return false;
    }
    lane_.release(only(source));
    return true;
  }

  FLUXCCL_DEVICE Sources localSources(const uint8_t* own, int further) const {
    return Sources{slots_, who_.locals(), who_.localIndex, own, further, who_.nLocal};
  }

  FLUXCCL_DEVICE Sources railSources(const uint8_t* own) const {
    return Sources{slots_, who_.rail(), who_.host, own, -1, who_.hosts};
  }

  const HierarchyPlan& plan_;
  const Hierarchy& who_;
  Slots& slots_;
  Lane lane_;

 private:
  template <typename BytesOf>
  FLUXCCL_DEVICE auto wantsOf(BytesOf bytesOf) const {
    return [this, bytesOf](int rank) {
      const int place = who_.placeOf(rank);
      return place >= 0 && bytesOf(place) > 0;
    };
  }

  FLUXCCL_DEVICE static void copySome(void* to, const void* from, uint64_t bytes) {
    if (bytes > 0) {
      copyBlock(to, from, bytes);
    }
  }

  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  uint64_t piece_ = 0;
  int64_t pieces_ = 0;
};

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
