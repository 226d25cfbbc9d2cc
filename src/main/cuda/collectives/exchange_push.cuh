// SPDX-License-Identifier: Apache-2.0
// Exchanges directly into the peers' outputs, for large messages. Outputs are registered, and no data is
// copied twice.
//
//   barrier                   every peer's output may be written
//   store this rank's parts   one peer after the other, each rank beginning with another one
//   barrier                   all data has arrived
//
// Stores to one peer at a time use a link better than stores to all peers. To prevent two ranks from storing
// to the same peer, the largest exchanges go in step: a rank continues with the next peer after the rank
// that was storing there has finished.
#pragma once

#include <fluxccl/copy.cuh>

#include "exchange_parts.cuh"

namespace fluxccl {
namespace collectives {

// As meet() at Point::ENTERED, but one block signals for the whole launch. That is enough, because on the
// rank that owns an output no work comes between the previous launch and this one.
FLUXCCL_DEVICE bool enter(const MappedPeers& peers, uint32_t epoch) {
  bool entered = true;
  const int peer = threadIdx.x;
  if (peer < peers.nRanks && peer != peers.rank) {
    if (blockIdx.x == 0) {
      // Pairs with the acquire below, in all blocks of the peer.
      storeReleaseSys(flag(peers, peer, Point::ENTERED, 0, peers.rank, epoch), flagValue(epoch, 1));
    }
    const uint64_t* theirs = flag(peers, peers.rank, Point::ENTERED, 0, peer, epoch);
    entered = waitUntil(peers.abort, peer,
                        [=] { return loadAcquireSys(theirs) == flagValue(epoch, 1); });
  }
  return __syncthreads_and(entered);
}

// This block's share of a copy. Shares begin at multiples of a line.
FLUXCCL_DEVICE void copyShare(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  constexpr uint64_t kLine = 128;
  const uint64_t share = ((bytes + gridDim.x - 1) / gridDim.x + kLine - 1) / kLine * kLine;
  const uint64_t begin = share * blockIdx.x;
  if (begin < bytes) {
    const uint64_t left = bytes - begin;
    copy<16, true, 4>(to + begin, from + begin, left < share ? left : share, threadIdx.x, blockDim.x);
  }
}

// Ends a step: notifies the rank to which this rank wrote, and waits for the rank that wrote to this rank.
// Requires parts for all peers, those ahead of this rank first.
FLUXCCL_DEVICE bool endStep(const MappedPeers& peers, uint32_t step, uint32_t epoch) {
  bool ended = true;
  __syncthreads();
  if (threadIdx.x == 0) {
    signalPeerRelaxed(peers, peers.successor(step), Point::SENT, epoch, step);
    ended = awaitPeer(peers, peers.predecessor(step), Point::SENT, epoch, step);
  }
  return __syncthreads_and(ended);
}

FLUXCCL_DEVICE void exchangeByStores(const MappedPeers& peers, const ExchangeParts& parts, bool inStep) {
  const uint32_t epoch = beginEpoch(peers);
  bool going = enter(peers, epoch);
  for (uint32_t i = 0; going && i < parts.nParts; ++i) {
    const ExchangeParts::Part& part = parts.parts[i];
    copyShare(part.to, part.from, part.sendBytes);
    going = !inStep || i + 1 >= parts.nParts || endStep(peers, i + 1, epoch);
  }
  if (going) {
    copyShare(parts.ownTo, parts.ownFrom, parts.ownBytes);
    going = meet(peers, Point::LEFT, epoch);
  }
  endEpoch(peers, epoch, going);
}

// A barrier in a launch of its own, between copies by copy engines: all work before it on any rank's stream
// is complete.
FLUXCCL_DEVICE void meetAll(const MappedPeers& peers) {
  const uint32_t epoch = beginEpoch(peers);
  endEpoch(peers, epoch, meet(peers, Point::LEFT, epoch));
}

// Copies only this rank's own part. Passes no barrier, so it counts no epoch.
FLUXCCL_DEVICE void copyOwnPart(const ExchangeParts& parts) {
  copyShare(parts.ownTo, parts.ownFrom, parts.ownBytes);
}

}  // namespace collectives
}  // namespace fluxccl
