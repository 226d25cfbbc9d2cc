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
  // Sends or receives a part. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool exchange(uint32_t index, Ll128Unit& first) {
    if (parts_.parts[index].isLarge()) {
      return parts_.parts[index].sendUnits > 0 ? sendLarge(index, first) : receiveLarge(index);
    }
    return firstPosition() >= positions() || (send(firstPosition(), first) && passOn());
  }

  // In place of the address of an output.
  static constexpr uint64_t kAborted = ~0ull;

  // The threads that store one share of a large message: a block if it only sends, otherwise a warp.
  FLUXCCL_DEVICE bool isTeamABlock() const { return gridDim.x % parts_.nParts == 0; }

  FLUXCCL_DEVICE bool vote(bool value) const {
    return isTeamABlock() ? __syncthreads_and(value) : __all_sync(kAllLanes, value);
  }

  // Sends a large message: its first units through the ring, which takes no longer than the receiver's offer
  // takes to arrive, then the rest. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool sendLarge(uint32_t index, Ll128Unit& first) {
    const ExchangeParts::Part& part = parts_.parts[index];
    const uint32_t team = isTeamABlock() ? blockIdx.x / parts_.nParts : firstPosition() / parts_.nParts;
    // So each team has at least one line of the rest, and at least one unit if the message takes the ring. The
    // receiver needs all of these, so it publishes no later offer until this team is done. A team with nothing
    // to send might see the next message's offer and mistake it for this one's.
    const uint32_t teams = min((isTeamABlock() ? gridDim.x : warps()) / parts_.nParts, part.sendUnits);
    if (team >= teams) {
      return true;
    }
    const bool isFirst = firstPosition() / parts_.nParts < static_cast<uint32_t>(part.firstUnits);
    const bool isSent = !isFirst || send(firstPosition(), first);
    const uint64_t output = awaitOutput(index);
    if (!vote(isSent && output != kAborted)) {
      return false;
    }
    if (output == 0) {
      return firstPosition() >= positions() || ((isFirst || sendFirst()) && passOn());
    }
    storeShare(part, reinterpret_cast<uint8_t*>(output), team, teams);
    return true;
  }

  FLUXCCL_DEVICE bool sendFirst() {
    Ll128Unit first;
    load(firstPosition(), first);
    return send(firstPosition(), first);
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

  // Receives a large message. One warp waits for what is stored into the output. Returns false if the job was
  // aborted.
  FLUXCCL_DEVICE bool receiveLarge(uint32_t index) {
    const ExchangeParts::Part& part = parts_.parts[index];
    if (part.offer == 0) {
      return firstPosition() >= positions() || passOn();
    }
    if (firstPosition() / parts_.nParts < static_cast<uint32_t>(part.firstUnits) &&
        !receive(firstPosition())) {
      return false;
    }
    if (firstPosition() >= parts_.nParts) {
      return true;
    }
    const uint64_t awaited = progress_[index].awaited + storedBytes(part);
    const uint64_t* arrived = &counters(peers_.rank)->arrived[part.peer];
    const bool isThere =
        waitUntil(peers_.abort, part.peer, [=] { return loadAcquireSys(arrived) >= awaited; });
    return __all_sync(kAllLanes, isThere);
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
