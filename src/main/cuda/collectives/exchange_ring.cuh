// SPDX-License-Identifier: Apache-2.0
// The counters of the rings through which exchange_packets.cuh sends units. The twin of ExchangeRing.java.
#pragma once

#include <fluxccl/config.cuh>

#include "mapped_peers.cuh"

namespace fluxccl {
namespace collectives {

// A count of sent units for which no peer ever makes room: that of a rank whose launch was aborted.
constexpr uint64_t kNeverRoom = 1ull << 62;

struct RingCounters {
  static constexpr int kMaxShortParts = 2;

  // Number of blocks of this launch that have read the counters; in exchange_short.cuh for each part.
  uint32_t readers[kMaxShortParts];
  uint32_t padding[14];
  // Units by peer.
  uint64_t sent[MappedPeers::kMaxRanks];
  uint64_t received[MappedPeers::kMaxRanks];
  // Raised by the peer: number of this rank's units that it had received before its current launch.
  uint64_t begun[MappedPeers::kMaxRanks];
  // The bytes that a barrier exchanges.
  uint32_t nothing[MappedPeers::kMaxRanks];
  // Written by the peer: 1 + the number of the first unit of a large message, and the place that it offers
  // for the message.
  struct Offer {
    uint64_t message;
    uint64_t where;
  } offers[MappedPeers::kMaxRanks];
  // Bytes that the peer has stored into this rank's outputs, and bytes for which this rank has waited.
  uint64_t arrived[MappedPeers::kMaxRanks];
  uint64_t awaited[MappedPeers::kMaxRanks];
};
FLUXCCL_ASSERT_OFFSET(RingCounters, nothing, 448);
FLUXCCL_ASSERT_OFFSET(RingCounters, arrived, 768);
FLUXCCL_ASSERT_SIZE(RingCounters, 1024);

// A block's copy of a pair's counters from the beginning of a launch.
struct PairProgress {
  uint64_t sent;
  uint64_t received;
  uint64_t begun;
  uint64_t awaited;
};

}  // namespace collectives
}  // namespace fluxccl
