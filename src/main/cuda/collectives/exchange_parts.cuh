// What a kernel that only moves bytes is given: for each peer with which this rank exchanges something,
// which bytes go there and where the peer's go. One kernel so serves every such collective.
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
    // Where the peer's bytes go; of a kernel that writes peers' outputs, where this rank's bytes go there.
    uint8_t* to;
    uint64_t sendBytes;
    uint64_t receiveBytes;
    // How many slots the bytes take, and how many rows of packets of a slot are in use. Both sides of a
    // pair know both, because they follow from the bytes.
    uint32_t sendUnits;
    uint32_t receiveUnits;
    uint32_t sendRows;
    uint32_t receiveRows;
    int32_t peer;
    // Of a send-receive: whether sender and receiver agree first on where the bytes go.
    uint32_t isLarge;
    // Of a large one, what the receiver offers: its registered output. 0 if it is none, so through the ring.
    uint64_t offer;
  };

  // An offer is 1 + the number of the registration, and the offset in it.
  static constexpr int kOfferOffsetBits = 40;

  // Ahead of this rank first, so that everybody begins with another peer.
  Part parts[kMaxParts];
  const uint8_t* ownFrom;
  uint8_t* ownTo;
  // 0 where the rank's own part is in place already.
  uint64_t ownBytes;
  // Of exchange_packets.cuh: where in a state the rings lie, and slots of a ring, a power of 2.
  uint64_t ringsOffset;
  uint32_t slots;
  uint32_t nParts;
  // The most units of a part in either direction.
  uint32_t maxUnits;
  uint32_t padding;
  // For each registration the ranks' buffers as mapped here, kMaxRanks addresses; 0 until it is known.
  const uint64_t* registrations;
};
FLUXCCL_ASSERT_OFFSET(ExchangeParts, ownFrom, 960);
FLUXCCL_ASSERT_OFFSET(ExchangeParts, ringsOffset, 984);
FLUXCCL_ASSERT_SIZE(ExchangeParts, 1016);

}  // namespace collectives
}  // namespace fluxccl
