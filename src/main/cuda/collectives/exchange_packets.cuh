// SPDX-License-Identifier: Apache-2.0
// Exchanges by packets. Bytes and the flags that show their arrival travel together, through a ring of slots
// for each ordered pair of ranks. Sizes and alignment are arbitrary, nothing needs to be registered, and no
// rank waits for a rank with which it exchanges nothing.
//
// A state contains, for each kind of packet:
//
//   0      RingCounters                     what this rank has sent and received, and its peers' reports
//   1024   uint64 emptied[nRanks][slots]    raised by the receiver of this rank's units
//   ...    slots[nRanks][slots]             where the rank of that index sends to
//
// Each rank of a pair counts the pair's units forever. Both counts agree, because both ranks know how many
// units a message has. Unit u lies in slot u % slots. Its flag is the lap, 1 + u / slots, so a slot never
// contains the awaited flag before the unit has arrived. A sender learns in two ways that it may write a slot
// again:
//
//   - begun: at its beginning, a launch reports to its senders how many units earlier launches have received.
//     Small messages find this report long before they need it, so they never wait.
//   - emptied[slot]: in a message longer than the ring, the receiver reports the slots that this message
//     needs again.
//
// No deadlock is possible, whatever the ranks send. A warp handles positions (unit, part) in ascending order
// and sends one round of all warps ahead of what it receives. A warp that waits to send a unit waits until
// the unit one ring before it has been received. A warp that waits to receive a unit waits until it has been
// sent. A warp that should do this and does not is itself waiting at a lower unit, because a round is shorter
// than a ring (the host ensures this) and covers at least one unit of every part. So there can be no lowest
// wait.
#pragma once

#include <fluxccl/atomics.cuh>
#include <fluxccl/copy.cuh>
#include <fluxccl/poll.cuh>
#include <fluxccl/ptx.cuh>

#include "exchange_parts.cuh"
#include "exchange_ring.cuh"
#include "exchange_units.cuh"

namespace fluxccl {
namespace collectives {

// One launch: the state of all rings of one kind of unit.
template <class Unit>
class PacketExchange {
 public:
  FLUXCCL_DEVICE PacketExchange(const MappedPeers& peers, const ExchangeParts& parts,
                                PairProgress* progress)
      : peers_(peers), parts_(parts), progress_(progress) {}

  FLUXCCL_DEVICE void run() {
    Unit first;
    begin(first);
    bool going = firstPosition() >= positions() || send(firstPosition(), first);
    const uint32_t readersBefore = countReader();
    copyOwn();
    going = going && passOn();
    finish(going, readersBefore);
  }

 protected:
  FLUXCCL_DEVICE static uint32_t warps() { return blockDim.x / kLanes * gridDim.x; }

  FLUXCCL_DEVICE uint32_t positions() const { return parts_.maxUnits * parts_.nParts; }

  // Returns this warp's first position. Neighbouring positions go to different blocks, because one
  // multiprocessor can use only a part of the links' bandwidth.
  FLUXCCL_DEVICE static uint32_t firstPosition() {
    return threadIdx.x / kLanes * gridDim.x + blockIdx.x;
  }

  // Sends and receives this warp's positions, of which the first has been sent. Returns false if the job was
  // aborted.
  FLUXCCL_DEVICE bool passOn() {
    for (uint32_t at = firstPosition(); at < positions(); at += warps()) {
      if (positions() - at > warps()) {
        Unit next;
        load(at + warps(), next);
        if (!send(at + warps(), next)) {
          return false;
        }
      }
      if (!receive(at)) {
        return false;
      }
    }
    return true;
  }

  FLUXCCL_DEVICE RingCounters* counters(int at) const {
    return reinterpret_cast<RingCounters*>(peers_.area(at, parts_.ringsOffset));
  }

  // Returns the address of the word for a slot. It lies at the sender, and the receiver raises it.
  FLUXCCL_DEVICE uint64_t* emptied(int sender, int receiver, uint32_t slot) const {
    return reinterpret_cast<uint64_t*>(counters(sender) + 1) +
           static_cast<uint64_t>(receiver) * parts_.slots + slot;
  }

  FLUXCCL_DEVICE uint8_t* slotAt(int sender, int receiver, uint32_t slot) const {
    const uint64_t slots = parts_.slots;
    return reinterpret_cast<uint8_t*>(counters(receiver) + 1) +
           peers_.nRanks * slots * sizeof(uint64_t) + (sender * slots + slot) * Unit::kSlotSize;
  }

  FLUXCCL_DEVICE uint32_t slotOf(uint64_t unit) const {
    return static_cast<uint32_t>(unit) & (parts_.slots - 1);
  }

  FLUXCCL_DEVICE uint32_t flagOf(uint64_t unit) const {
    return 1 + static_cast<uint32_t>(unit >> (__ffs(parts_.slots) - 1));
  }

  // Reads the counters and, while these loads are in flight, the data to send first.
  FLUXCCL_DEVICE void begin(Unit& first) {
    const uint32_t i = threadIdx.x;
    const bool hasPart = i < parts_.nParts;
    const int peer = hasPart ? parts_.parts[i].peer : peers_.rank;
    RingCounters* mine = counters(peers_.rank);
    // Relaxed is enough: another block writes these counters in end(), but only after all blocks have
    // reported that their loads have returned.
    const PairProgress progress = {
        loadRelaxedGpu(&mine->sent[peer]), loadRelaxedGpu(&mine->received[peer]),
        loadRelaxedSys(&mine->begun[peer]), loadRelaxedGpu(&mine->awaited[peer])};
    if (firstPosition() < positions()) {
      load(firstPosition(), first);
    }
    if (hasPart) {
      progress_[i] = progress;
      if (blockIdx.x == 0 && parts_.parts[i].receiveUnits > 0) {
        // This precedes every wait of this launch. The launches that read those slots have ended, so the
        // store need not order anything. Pairs with the load above and the one in awaitSlot, at the peer.
        storeRelaxedSys(&counters(peer)->begun[peers_.rank], progress.received);
        if (parts_.parts[i].isLarge()) {
          offer(i);
        }
      }
    }
    __syncthreads();
  }

  FLUXCCL_DEVICE bool isLastWarp() const {
    return threadIdx.x / kLanes == blockDim.x / kLanes - 1;
  }

  // Reports that this block has read the counters. Returns, to the first lane of the last warp, how many
  // blocks had done so before. Called early and its result used late, because the atomic takes as long as a
  // packet.
  FLUXCCL_DEVICE uint32_t countReader() {
    return gridDim.x > 1 && isLastWarp() && laneId() == 0
               ? fetchAddRelaxedGpu(&counters(peers_.rank)->readers[0], 1u)
               : 0;
  }

  FLUXCCL_DEVICE void finish(bool going, uint32_t readersBefore) {
    if (!going) {
      giveUp();
    } else if (isLastWarp()) {
      end(readersBefore);
    }
  }

  // Makes launches enqueued after this aborted one wait for ring space that no peer ever frees. Otherwise they
  // would send units with this launch's numbers, and peers would mistake these for its units. If end() has
  // advanced the counters, later launches use new numbers.
  FLUXCCL_DEVICE void giveUp() {
    const uint32_t i = laneId();
    if (i < parts_.nParts) {
      storeRelaxedGpu(&counters(peers_.rank)->sent[parts_.parts[i].peer], kNeverRoom);
    }
  }

  // Called by the last warp of a block: advances the counters for the next launch. The block that was the
  // last to read the counters writes them, because then all blocks have read them.
  FLUXCCL_DEVICE void end(uint32_t readersBefore) {
    if (__shfl_sync(kAllLanes, readersBefore, 0) != gridDim.x - 1) {
      return;
    }
    RingCounters* mine = counters(peers_.rank);
    const uint32_t i = laneId();
    if (i < parts_.nParts) {
      const ExchangeParts::Part& part = parts_.parts[i];
      // A send-receive may have two parts of one peer.
      if (part.sendUnits > 0) {
        storeRelaxedGpu(&mine->sent[part.peer], progress_[i].sent + part.sendUnits);
      }
      if (part.receiveUnits > 0) {
        storeRelaxedGpu(&mine->received[part.peer], progress_[i].received + part.receiveUnits);
      }
      if (part.receiveUnits > 0 && part.isLarge() && part.offer != 0) {
        storeRelaxedGpu(&mine->awaited[part.peer], progress_[i].awaited + storedBytes(part));
      }
    }
    if (i == 0) {
      storeRelaxedGpu(&mine->readers[0], 0u);
    }
  }

  FLUXCCL_DEVICE void copyOwn() {
    if (parts_.ownBytes > 0) {
      copy<16, true, 2>(parts_.ownTo, parts_.ownFrom, parts_.ownBytes, blockIdx.x * blockDim.x + threadIdx.x,
               gridDim.x * blockDim.x);
    }
  }

  // The bytes of one unit of a part, in one direction; the same in all lanes of a warp.
  struct Range {
    uint64_t offset;
    uint32_t size;
  };

  FLUXCCL_DEVICE static Range range(uint32_t unit, uint32_t rows, uint64_t bytes) {
    const uint32_t capacity = rows * Unit::kRowPayload;
    const uint64_t offset = static_cast<uint64_t>(unit) * capacity;
    const uint64_t left = bytes - offset;
    return {offset, left < capacity ? static_cast<uint32_t>(left) : capacity};
  }

  FLUXCCL_DEVICE void load(uint32_t position, Unit& values) const {
    const ExchangeParts::Part& part = parts_.parts[position % parts_.nParts];
    const uint32_t unit = position / parts_.nParts;
    if (unit < part.sendUnits) {
      const Range bytes = range(unit, part.sendRows, part.sendBytes);
      values.load(part.sendRows, part.from + bytes.offset, bytes.size);
    }
  }

  // Sends a unit. Returns false if the job was aborted.
  FLUXCCL_DEVICE bool send(uint32_t position, Unit& values) {
    const uint32_t index = position % parts_.nParts;
    const uint32_t unit = position / parts_.nParts;
    const ExchangeParts::Part& part = parts_.parts[index];
    if (unit >= part.sendUnits) {
      return true;
    }
    const uint64_t number = progress_[index].sent + unit;
    if (number + 1 > progress_[index].begun + parts_.slots && !awaitSlot(index, number)) {
      return false;
    }
    values.send(part.sendRows, slotAt(peers_.rank, part.peer, slotOf(number)),
                range(unit, part.sendRows, part.sendBytes).size, flagOf(number));
    return true;
  }

  // Waits until the previous unit in the slot has been taken.
  FLUXCCL_DEVICE bool awaitSlot(uint32_t index, uint64_t number) {
    const int peer = parts_.parts[index].peer;
    const uint64_t needed = number + 1 - parts_.slots;
    const uint64_t* word = needed > progress_[index].sent
                               ? emptied(peers_.rank, peer, slotOf(number))
                               : &counters(peers_.rank)->begun[peer];
    // Pairs with the stores in receive and begin at the peer. Relaxed is enough on both sides: only loads
    // precede those stores, and they have returned their values.
    const bool isFree = waitUntil(peers_.abort, peer, [=] { return loadRelaxedSys(word) >= needed; });
    return __all_sync(kAllLanes, isFree);
  }

  FLUXCCL_DEVICE bool receive(uint32_t position) {
    const uint32_t index = position % parts_.nParts;
    const uint32_t unit = position / parts_.nParts;
    const ExchangeParts::Part& part = parts_.parts[index];
    if (unit >= part.receiveUnits) {
      return true;
    }
    const uint64_t number = progress_[index].received + unit;
    const uint32_t slot = slotOf(number);
    const Range bytes = range(unit, part.receiveRows, part.receiveBytes);
    Unit values;
    if (!values.receive(part.receiveRows, slotAt(part.peer, peers_.rank, slot), bytes.size,
                        flagOf(number), peers_.abort, part.peer)) {
      return false;
    }
    // Only if this message needs the slot again; the next launch reports the other slots. All lanes have
    // their packets, because receive takes a vote. Pairs with awaitSlot.
    if (unit + static_cast<uint64_t>(parts_.slots) < part.receiveUnits && laneId() == 0) {
      storeRelaxedSys(emptied(part.peer, peers_.rank, slot), number + 1);
    }
    values.store(part.receiveRows, part.to + bytes.offset, bytes.size);
    return true;
  }

  // Offers the sender of a large message an address for it.
  FLUXCCL_DEVICE void offer(uint32_t index) {
    const ExchangeParts::Part& part = parts_.parts[index];
    RingCounters::Offer* offer = &counters(part.peer)->offers[peers_.rank];
    storeRelaxedSys(&offer->where, part.offer);
    // Pairs with the acquire in lookUpOutput at the peer, which then sees `where`. Earlier work of this stream
    // on the output is complete.
    storeReleaseSys(&offer->message, progress_[index].received + 1);
  }

  FLUXCCL_DEVICE static uint64_t firstBytes(const ExchangeParts::Part& part, uint32_t rows) {
    return static_cast<uint64_t>(part.firstUnits) * rows * Unit::kRowPayload;
  }

  // Returns the bytes that the sender of a large message stores into this rank's output.
  FLUXCCL_DEVICE static uint64_t storedBytes(const ExchangeParts::Part& part) {
    return part.receiveBytes - firstBytes(part, part.receiveRows);
  }

  const MappedPeers& peers_;
  const ExchangeParts& parts_;
  PairProgress* progress_;
};

template <class Unit>
FLUXCCL_DEVICE void exchangeByPackets(const MappedPeers& peers, const ExchangeParts& parts) {
  __shared__ PairProgress progress[ExchangeParts::kMaxParts];
  awaitLaunchBefore();
  letNextLaunchBegin();
  PacketExchange<Unit>(peers, parts, progress).run();
}

}  // namespace collectives
}  // namespace fluxccl
