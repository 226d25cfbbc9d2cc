// SPDX-License-Identifier: Apache-2.0
// The argument of kernels that only move bytes: for each peer with which this rank exchanges data, the bytes
// to send and the place for the bytes to receive. So one kernel serves all such collectives.
#pragma once

#include <fluxccl/config.cuh>

#include "mapped_peers.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.ExchangeParts.
struct ExchangeParts {
  static constexpr int kMaxParts = MappedPeers::kMaxRanks - 1;

  struct Part {
    const uint8_t* from;
    // The target of the peer's bytes. In kernels that write to peers' outputs: the target of this rank's bytes
    // on the peer.
    uint8_t* to;
    uint64_t sendBytes;
    uint64_t receiveBytes;
    // Number of slots for the bytes, and number of rows used in a slot. Both follow from the number of bytes,
    // so both ranks of a pair know them.
    uint32_t sendUnits;
    uint32_t receiveUnits;
    uint32_t sendRows;
    uint32_t receiveRows;
    int32_t peer;
    // Send-receive only: number of units of a large message that go through the ring before the sender awaits
    // the receiver's offer of an address for the rest. Negative if the message is not large. At most a quarter
    // of the message, and no more than the warps that send, or receive, can handle with one unit each.
    int32_t firstUnits;
    // Large send-receive only: the receiver's offer, its registered output. 0 if the output is not
    // registered; the bytes then go through the ring.
    uint64_t offer;

#if defined(FLUXCCL_CUDA)
    FLUXCCL_DEVICE bool isLarge() const { return firstUnits >= 0; }
#endif
  };

  // An offer is 1 + the number of the registration, and the offset in it.
  static constexpr int kOfferOffsetBits = 40;

  // Peers after this rank in rank order are first, so that every rank begins with another peer.
  Part parts[kMaxParts];
  const uint8_t* ownFrom;
  uint8_t* ownTo;
  // 0 if the rank's own part is already in place.
  uint64_t ownBytes;
  // For exchange_packets.cuh: offset of the rings in a state, and the number of slots of a ring, a power of
  // 2.
  uint64_t ringsOffset;
  uint32_t slots;
  uint32_t nParts;
  // The largest number of units of a part, in either direction.
  uint32_t maxUnits;
  uint32_t padding;
  // For each registration, kMaxRanks addresses: the ranks' buffers as mapped here; 0 until known.
  const uint64_t* registrations;
};
FLUXCCL_ASSERT_OFFSET(ExchangeParts, ownFrom, 960);
FLUXCCL_ASSERT_OFFSET(ExchangeParts, ringsOffset, 984);
FLUXCCL_ASSERT_SIZE(ExchangeParts, 1016);

}  // namespace collectives
}  // namespace fluxccl
