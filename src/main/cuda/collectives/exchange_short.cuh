// SPDX-License-Identifier: Apache-2.0
// Exchanges of short messages with one or two peers, for the least latency. The messages go through the rings
// of exchange_packets.cuh, by the same protocol: a peer can't tell by which kernel a rank sends or receives.
//
// A message is short if it takes at most half a ring, one row a slot. So a rank can send all of it before it
// receives anything, and a warp handles its rows without counting rounds: it sends them, then it receives
// those of the same numbers. The host computes whatever the kernel would otherwise have to look up or divide,
// because a launch takes only some two thousand cycles.
#pragma once

#include <fluxccl/copy.cuh>

#include "exchange_packets.cuh"
#include "packet_rows.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.ShortExchange.
struct ShortExchange {
  static constexpr int kMaxParts = RingCounters::kMaxShortParts;

  // A message to a peer and a message from a peer, which may be another one. Addresses and sizes are multiples of
  // a row's unit.
  struct Part {
    const uint8_t* from;
    uint8_t* to;
    // The slots of this rank at the first peer, and those of the second peer here.
    uint8_t* outbound;
    const uint8_t* inbound;
    // The second peer's counters.
    RingCounters* sender;
    uint32_t sendBytes;
    uint32_t receiveBytes;
    int32_t sendPeer;
    int32_t receivePeer;
  };

  AbortFlag* abort;
  // This rank's counters.
  RingCounters* counters;
  const uint8_t* ownFrom;
  uint8_t* ownTo;
  // 0 if the rank's own part is already in place.
  uint64_t ownBytes;
  // Slots of a ring, a power of 2, and its logarithm.
  uint32_t slots;
  uint32_t slotsLog;
  // 1 or 2. With 2, blocks take turns: every other block handles the same part.
  uint32_t nParts;
  int32_t rank;
  int32_t padding[2];
  Part parts[kMaxParts];
};
FLUXCCL_ASSERT_OFFSET(ShortExchange, ownFrom, 16);
FLUXCCL_ASSERT_OFFSET(ShortExchange, slots, 40);
FLUXCCL_ASSERT_OFFSET(ShortExchange, parts, 64);
FLUXCCL_ASSERT_SIZE(ShortExchange, 176);

#if defined(FLUXCCL_CUDA)

namespace detail {

// Loads what exists of a lane's bytes of a row; left counts from the first of them to the message's end.
template <class Rows>
FLUXCCL_DEVICE void loadLane(const uint8_t* from, int32_t left, uint32_t, uint32_t& word) {
  word = left > 0 ? *reinterpret_cast<const uint32_t*>(from) : 0;
}

template <class Rows>
FLUXCCL_DEVICE void loadLane(const uint8_t* from, int32_t left, uint32_t lane, uint4& word) {
  const uint2* words = reinterpret_cast<const uint2*>(from);
  const uint2 low = left > 0 ? words[0] : make_uint2(0, 0);
  const uint2 high = left > 8 && Rows::length(lane) > 8 ? words[1] : make_uint2(0, 0);
  word = make_uint4(low.x, low.y, high.x, high.y);
}

template <class Rows>
FLUXCCL_DEVICE void storeLane(uint8_t* to, int32_t left, uint32_t, uint32_t word) {
  if (left > 0) {
    *reinterpret_cast<uint32_t*>(to) = word;
  }
}

template <class Rows>
FLUXCCL_DEVICE void storeLane(uint8_t* to, int32_t left, uint32_t lane, const uint4& word) {
  uint2* words = reinterpret_cast<uint2*>(to);
  if (left > 0) {
    words[0] = make_uint2(word.x, word.y);
  }
  if (left > 8 && Rows::length(lane) > 8) {
    words[1] = make_uint2(word.z, word.w);
  }
}

}  // namespace detail

// One launch. Rows, Unit: the same kind of packets, as a row and as a unit of a ring.
template <class Rows, class Unit>
class ShortLaunch {
 public:
  FLUXCCL_DEVICE explicit ShortLaunch(const ShortExchange& call)
      : call_(call),
        index_(call.nParts > 1 ? blockIdx.x % ShortExchange::kMaxParts : 0),
        part_(call.parts[index_]),
        blocks_(call.nParts > 1 ? gridDim.x / ShortExchange::kMaxParts : gridDim.x),
        block_(call.nParts > 1 ? blockIdx.x / ShortExchange::kMaxParts : blockIdx.x),
        lane_(threadIdx.x % kLanes),
        first_(threadIdx.x / kLanes * blocks_ + block_),
        step_(blockDim.x / kLanes * blocks_),
        sendRows_(rowsOf(part_.sendBytes)),
        receiveRows_(rowsOf(part_.receiveBytes)) {}

  FLUXCCL_DEVICE void run() {
    awaitLaunchBefore();
    letNextLaunchBegin();
    begin();
    // The barrier: all warps of this block have read the counters, which finish() may overwrite.
    const bool sent = __syncthreads_and(sendAll() && sent_ < kNeverRoom && received_ < kNeverRoom);
    const uint32_t readersBefore =
        blocks_ > 1 && threadIdx.x == 0 ? fetchAddRelaxedGpu(&call_.counters->readers[index_], 1u) : 0;
    if (call_.ownBytes > 0) {
      copy<16, true, 2>(call_.ownTo, call_.ownFrom, call_.ownBytes, blockIdx.x * blockDim.x + threadIdx.x,
                        gridDim.x * blockDim.x);
    }
    if (!sent || !receiveAll()) {
      // As PacketExchange::giveUp().
      storeRelaxedGpu(&call_.counters->sent[part_.sendPeer], kNeverRoom);
    } else if (threadIdx.x == 0 && readersBefore == blocks_ - 1) {
      finish();
    }
  }

 private:
  FLUXCCL_DEVICE static uint32_t rowsOf(uint32_t bytes) {
    return (bytes + Rows::kPayload - 1) / Rows::kPayload;
  }

  FLUXCCL_DEVICE int32_t bytesLeft(uint32_t row, uint32_t bytes) const {
    return static_cast<int32_t>(bytes - row * Rows::kPayload) - static_cast<int32_t>(Rows::offset(lane_));
  }

  FLUXCCL_DEVICE typename Rows::Word load(uint32_t row) const {
    typename Rows::Word word;
    detail::loadLane<Rows>(part_.from + (row * Rows::kPayload + Rows::offset(lane_)),
                           bytesLeft(row, part_.sendBytes), lane_, word);
    return word;
  }

  FLUXCCL_DEVICE uint32_t slotOffset(uint64_t number) const {
    return (static_cast<uint32_t>(number) & (call_.slots - 1)) * Unit::kSlotSize;
  }

  FLUXCCL_DEVICE uint32_t flagOf(uint64_t number) const {
    return 1 + static_cast<uint32_t>(number >> call_.slotsLog);
  }

  // Reads the counters and, while these loads are in flight, the row to send first.
  FLUXCCL_DEVICE void begin() {
    sent_ = loadRelaxedGpu(&call_.counters->sent[part_.sendPeer]);
    received_ = loadRelaxedGpu(&call_.counters->received[part_.receivePeer]);
    begun_ = loadRelaxedSys(&call_.counters->begun[part_.sendPeer]);
    if (first_ < sendRows_) {
      word_ = load(first_);
    }
  }

  // Reports to the second peer, as PacketExchange::begin() does. The thread that reports does so before it
  // waits for anything, but not before it has sent what it can: that would take a tenth of the launch.
  FLUXCCL_DEVICE void report() const {
    if (block_ == 0 && threadIdx.x == 0 && receiveRows_ > 0) {
      storeRelaxedSys(&part_.sender->begun[call_.rank], received_);
    }
  }

  // Sends this warp's rows, and reports. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool sendAll() {
#pragma unroll 1
    for (uint32_t row = first_; row < sendRows_; row += step_) {
      const uint64_t number = sent_ + row;
      // The peer may report while the lanes load: they must agree.
      if (__any_sync(kAllLanes, number + 1 > begun_ + call_.slots) && !awaitRoom(number + 1 - call_.slots)) {
        return false;
      }
      Rows::send(part_.outbound + slotOffset(number), lane_, word_, flagOf(number));
      if (row + step_ < sendRows_) {
        word_ = load(row + step_);
      }
    }
    report();
    return true;
  }

  // Waits until the peer has received `needed` units. All of them belong to earlier messages, so the peer reports
  // them when it begins to receive this one.
  FLUXCCL_DEVICE bool awaitRoom(uint64_t needed) {
    report();
    return awaitBegun(call_.abort, part_.sendPeer, &call_.counters->begun[part_.sendPeer], needed);
  }

  static FLUXCCL_DEVICE_CALL bool awaitBegun(AbortFlag* abort, int peer, const uint64_t* begun,
                                             uint64_t needed) {
    // Pairs with the store in report() or PacketExchange::begin() at the peer.
    const bool isFree = waitUntil(abort, peer, [=] { return loadRelaxedSys(begun) >= needed; });
    return __all_sync(kAllLanes, isFree);
  }

  // Receives this warp's rows. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool receiveAll() {
#pragma unroll 1
    for (uint32_t row = first_; row < receiveRows_; row += step_) {
      const uint64_t number = received_ + row;
      typename Rows::Raw raw;
      if (!receiveRow<Rows>(call_.abort, part_.receivePeer, part_.inbound + slotOffset(number), lane_,
                            flagOf(number), raw)) {
        return false;
      }
      detail::storeLane<Rows>(part_.to + (row * Rows::kPayload + Rows::offset(lane_)),
                              bytesLeft(row, part_.receiveBytes), lane_, Rows::wordOf(raw));
    }
    return true;
  }

  // Advances the counters for the next launch, once all blocks of this part have read them.
  FLUXCCL_DEVICE void finish() {
    if (sendRows_ > 0) {
      storeRelaxedGpu(&call_.counters->sent[part_.sendPeer], sent_ + sendRows_);
    }
    if (receiveRows_ > 0) {
      storeRelaxedGpu(&call_.counters->received[part_.receivePeer], received_ + receiveRows_);
    }
    if (blocks_ > 1) {
      storeRelaxedGpu(&call_.counters->readers[index_], 0u);
    }
  }

  const ShortExchange& call_;
  const uint32_t index_;
  const ShortExchange::Part& part_;
  // The blocks of this part, and the number of this block among them.
  const uint32_t blocks_;
  const uint32_t block_;
  const uint32_t lane_;
  // The first row of this warp, and the distance to its next one. Neighbouring rows go to different blocks.
  const uint32_t first_;
  const uint32_t step_;
  const uint32_t sendRows_;
  const uint32_t receiveRows_;
  uint64_t sent_;
  uint64_t received_;
  uint64_t begun_;
  typename Rows::Word word_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
