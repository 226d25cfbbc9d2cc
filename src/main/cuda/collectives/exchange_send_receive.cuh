// SPDX-License-Identifier: Apache-2.0
// Send-receives by packets, and large messages of them, which are mostly stored into the receiver's output.
//
//   sender      first units through the ring      store the rest into the output, count its bytes
//                        |                        ^                     |
//   receiver    offer the output ---> first units |                     +---> wait until all bytes are counted
//
// The receiver offers an output that is registered; if it is not, the whole message takes the ring. While the
// offer is on its way, the first units keep the link busy.
#pragma once

#include "exchange_packets.cuh"

namespace fluxccl {
namespace collectives {

class SendReceive : public PacketExchange<Ll128Unit> {
 public:
  using PacketExchange<Ll128Unit>::PacketExchange;

  // The host ensures that as many warps only send as only receive, so that neither direction waits for the
  // other. Both ranks count all units of a large message in the ring, also those that do not take it.
  FLUXCCL_DEVICE void run() {
    Ll128Unit first;
    begin(first);
    const uint32_t readersBefore = countReader();
    copyOwn();
    finish(parts_.nParts == 0 || exchange(firstPosition() % parts_.nParts, first), readersBefore);
  }

 private:
  // State of a large message: done, to be sent through the ring, or aborted.
  enum class Way { DONE, RING, ABORTED };

  // Sends or receives a part. Returns false if the job was aborted. All functions are inlined, so each is called
  // as rarely as possible.
  FLUXCCL_DEVICE bool exchange(uint32_t index, Ll128Unit& first) {
    const ExchangeParts::Part& part = parts_.parts[index];
    const bool isFirst =
        !part.isLarge() || firstPosition() / parts_.nParts < static_cast<uint32_t>(part.firstUnits);
    bool going = !isFirst || send(firstPosition(), first);
    if (part.isLarge()) {
      const Way way = part.sendUnits > 0 ? sendLarge(index, going) : receiveLarge(index, isFirst);
      if (way != Way::RING) {
        return way == Way::DONE;
      }
      if (!isFirst && firstPosition() < positions()) {
        load(firstPosition(), first);
        going = send(firstPosition(), first);
      }
    }
    return going && passOn();
  }

  // In place of the address of an output.
  static constexpr uint64_t kAborted = ~0ull;

  // The threads that store one share of a large message: a block if it only sends, otherwise a warp.
  FLUXCCL_DEVICE bool isTeamABlock() const { return gridDim.x % parts_.nParts == 0; }

  // Orders the team's accesses, too, as a warp's vote alone does not.
  FLUXCCL_DEVICE bool vote(bool value) const {
    if (isTeamABlock()) {
      return __syncthreads_and(value);
    }
    __syncwarp();
    return __all_sync(kAllLanes, value);
  }

  // Sends a large message, of which the first units are on their way: that takes no longer than the receiver's
  // offer takes to arrive.
  FLUXCCL_DEVICE Way sendLarge(uint32_t index, bool isSent) {
    const ExchangeParts::Part& part = parts_.parts[index];
    const uint32_t team = isTeamABlock() ? blockIdx.x / parts_.nParts : firstPosition() / parts_.nParts;
    // So each team has at least one line of the rest, and at least one unit if the message takes the ring. The
    // receiver needs all of these, so it publishes no later offer until this team is done. A team with nothing
    // to send might see the next message's offer and mistake it for this one's.
    const uint32_t teams = min((isTeamABlock() ? gridDim.x : warps()) / parts_.nParts, part.sendUnits);
    if (team >= teams) {
      return Way::DONE;
    }
    const uint64_t output = awaitOutput(index);
    if (!vote(isSent && output != kAborted)) {
      return Way::ABORTED;
    }
    if (output == 0) {
      return Way::RING;
    }
    storeShare(part, reinterpret_cast<uint8_t*>(output), team, teams);
    return Way::DONE;
  }

  // Waits for the receiver's offer. Returns, to the whole team, the address of the output as mapped here, 0 if
  // the message takes the ring, or kAborted.
  FLUXCCL_DEVICE uint64_t awaitOutput(uint32_t index) {
    __shared__ uint64_t outputs[32];
    const uint32_t warp = isTeamABlock() ? 0 : threadIdx.x / kLanes;
    if (isTeamABlock() ? threadIdx.x == 0 : laneId() == 0) {
      outputs[warp] = lookUpOutput(index);
    }
    vote(true);
    return outputs[warp];
  }

  FLUXCCL_DEVICE uint64_t lookUpOutput(uint32_t index) {
    const int peer = parts_.parts[index].peer;
    const RingCounters::Offer* offer = &counters(peers_.rank)->offers[peer];
    const uint64_t message = progress_[index].sent + 1;
    // Pairs with the release in offer() at the peer.
    if (!waitUntil(peers_.abort, peer, [=] { return loadAcquireSys(&offer->message) >= message; })) {
      return kAborted;
    }
    const uint64_t where = loadRelaxedSys(&offer->where);
    if (where == 0) {
      return 0;
    }
    const uint64_t* known = parts_.registrations +
                            ((where >> ExchangeParts::kOfferOffsetBits) - 1) * MappedPeers::kMaxRanks + peer;
    // The receiver may complete the registration before this rank does.
    if (!waitUntil(peers_.abort, peer, [=] { return loadRelaxedSys(known) != 0; })) {
      return kAborted;
    }
    return loadRelaxedSys(known) + (where & ((1ull << ExchangeParts::kOfferOffsetBits) - 1));
  }

  // Stores a team's share of what follows the first units. Shares are whole lines and differ by one line at
  // most.
  FLUXCCL_DEVICE void storeShare(const ExchangeParts::Part& part, uint8_t* output, uint32_t team,
                                 uint32_t teams) {
    const uint64_t inRing = firstBytes(part, part.sendRows);
    const uint64_t rest = part.sendBytes - inRing;
    const uint64_t lines = (rest + Ll128Unit::kLine - 1) / Ll128Unit::kLine;
    const uint64_t share = lines / teams;
    const uint64_t longer = lines - share * teams;
    const uint64_t begin = (team * share + min(static_cast<uint64_t>(team), longer)) * Ll128Unit::kLine;
    const uint64_t size = min((share + (team < longer)) * Ll128Unit::kLine, rest - begin);
    const bool byBlock = isTeamABlock();
    copy<16, true, 4>(output + inRing + begin, part.from + inRing + begin, size,
                      byBlock ? threadIdx.x : laneId(), byBlock ? blockDim.x : kLanes);
    // So that the release covers the whole team. Pairs with the acquire in receiveLarge at the peer.
    vote(true);
    if (byBlock ? threadIdx.x == 0 : laneId() == 0) {
      addReleaseSys(&counters(part.peer)->arrived[peers_.rank], size);
    }
  }

  // Receives a large message. One warp waits for what is stored into the output.
  FLUXCCL_DEVICE Way receiveLarge(uint32_t index, bool isFirst) {
    const ExchangeParts::Part& part = parts_.parts[index];
    if (part.offer == 0) {
      return Way::RING;
    }
    if (isFirst && !receive(firstPosition())) {
      return Way::ABORTED;
    }
    if (firstPosition() >= parts_.nParts) {
      return Way::DONE;
    }
    const uint64_t awaited = progress_[index].awaited + storedBytes(part);
    const uint64_t* arrived = &counters(peers_.rank)->arrived[part.peer];
    const bool isThere =
        waitUntil(peers_.abort, part.peer, [=] { return loadAcquireSys(arrived) >= awaited; });
    return __all_sync(kAllLanes, isThere) ? Way::DONE : Way::ABORTED;
  }
};

FLUXCCL_DEVICE void sendAndReceive(const MappedPeers& peers, const ExchangeParts& parts) {
  __shared__ PairProgress progress[ExchangeParts::kMaxParts];
  awaitLaunchBefore();
  letNextLaunchBegin();
  SendReceive(peers, parts, progress).run();
}

}  // namespace collectives
}  // namespace fluxccl
