// Exchanges by packets: bytes travel with the flags that tell that they are there, through a ring of
// slots for each ordered pair of ranks. Any sizes, any alignment, nothing registered, and nobody waits
// for a rank with which it exchanges nothing.
//
// A state has for each kind of packets:
//
//   0      RingCounters                     what this rank has sent and received, and heard of its peers
//   1024   uint64 emptied[nRanks][slots]    raised by the receiver of this rank's units
//   ...    slots[nRanks][slots]             where the rank of that index sends to
//
// A pair counts its units for ever, each side for itself; both count alike, because both know how many
// units a message has. Unit u lies in slot u % slots; its flag is the lap, 1 + u / slots, so a slot never
// holds the flag that is awaited before the unit is there. A slot may be written again when
//
//   - begun says so: a launch tells its senders first of all how much was received in launches before;
//     small messages find it there long before they need it, so that they never wait;
//   - emptied[slot] says so: within a message that is longer than the ring, a receiver tells of the slots
//     that this message needs again.
//
// Nothing deadlocks, whoever sends how much to whom: a warp takes positions (unit, part) in ascending
// order and sends one round of all warps ahead of what it receives. Who waits to send unit u waits for
// the receipt of u - slots, who waits to receive u waits for its sending; a warp that should do so and does
// not is itself waiting at a lower unit, because a round is shorter than half a ring (the host sees to
// that) and at least one unit of every part long. So the lowest wait of all can't be.
#pragma once

#include <fluxccl/copy.cuh>
#include <fluxccl/packet.cuh>
#include <fluxccl/ptx.cuh>

#include "exchange_parts.cuh"

namespace fluxccl {
namespace collectives {

struct RingCounters {
  // How many blocks of this launch have read the counters.
  uint32_t readers;
  uint32_t padding[15];
  // Units by peer.
  uint64_t sent[MappedPeers::kMaxRanks];
  uint64_t received[MappedPeers::kMaxRanks];
  // Raised by the peer: how many of this rank's units it had received before the launch it is in.
  uint64_t begun[MappedPeers::kMaxRanks];
  // What a barrier exchanges.
  uint32_t nothing[MappedPeers::kMaxRanks];
  // Raised by the peer: 1 + the number of the first unit of a large message, and where it may be put.
  struct Offer {
    uint64_t message;
    uint64_t where;
  } offers[MappedPeers::kMaxRanks];
  // Bytes that the peer has put into this rank's outputs, and how many this rank has awaited.
  uint64_t arrived[MappedPeers::kMaxRanks];
  uint64_t awaited[MappedPeers::kMaxRanks];
};
FLUXCCL_ASSERT_OFFSET(RingCounters, nothing, 448);
FLUXCCL_ASSERT_OFFSET(RingCounters, arrived, 768);
FLUXCCL_ASSERT_SIZE(RingCounters, 1024);

namespace detail {

// 8 or 4 bytes as a word, loaded by units of the type U.
template <typename Word, typename U>
FLUXCCL_DEVICE Word loadBy(const uint8_t* from) {
  Word word = 0;
#pragma unroll
  for (uint32_t i = 0; i < sizeof(Word) / sizeof(U); ++i) {
    word |= static_cast<Word>(reinterpret_cast<const U*>(from)[i]) << (8 * sizeof(U) * i);
  }
  return word;
}

template <typename Word, typename U>
FLUXCCL_DEVICE void storeBy(uint8_t* to, Word word) {
#pragma unroll
  for (uint32_t i = 0; i < sizeof(Word) / sizeof(U); ++i) {
    reinterpret_cast<U*>(to)[i] = static_cast<U>(word >> (8 * sizeof(U) * i));
  }
}

template <typename Word>
FLUXCCL_DEVICE_CALL Word loadMisaligned(const uint8_t* from, int32_t left) {
  const uint32_t misaligned = reinterpret_cast<uint64_t>(from) % sizeof(Word);
  if (left >= static_cast<int32_t>(sizeof(Word))) {
    if (misaligned % 4 == 0) {
      return loadBy<Word, uint32_t>(from);
    }
    if (misaligned % 2 == 0) {
      return loadBy<Word, unsigned short>(from);
    }
  }
  Word word = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < sizeof(Word) && static_cast<int32_t>(i) < left; ++i) {
    word |= static_cast<Word>(from[i]) << (8 * i);
  }
  return word;
}

template <typename Word>
FLUXCCL_DEVICE_CALL void storeMisaligned(uint8_t* to, int32_t left, Word word) {
  const uint32_t misaligned = reinterpret_cast<uint64_t>(to) % sizeof(Word);
  if (left >= static_cast<int32_t>(sizeof(Word))) {
    if (misaligned % 4 == 0) {
      storeBy<Word, uint32_t>(to, word);
      return;
    }
    if (misaligned % 2 == 0) {
      storeBy<Word, unsigned short>(to, word);
      return;
    }
  }
#pragma unroll 1
  for (uint32_t i = 0; i < sizeof(Word) && static_cast<int32_t>(i) < left; ++i) {
    to[i] = static_cast<uint8_t>(word >> (8 * i));
  }
}

// The word at any address, of which only the first left bytes are there; zeros for the others.
template <typename Word>
FLUXCCL_DEVICE Word loadWord(const uint8_t* from, int32_t left) {
  return left >= static_cast<int32_t>(sizeof(Word)) && reinterpret_cast<uint64_t>(from) % sizeof(Word) == 0
             ? *reinterpret_cast<const Word*>(from)
             : left > 0 ? loadMisaligned<Word>(from, left) : 0;
}

template <typename Word>
FLUXCCL_DEVICE void storeWord(uint8_t* to, int32_t left, Word word) {
  if (left >= static_cast<int32_t>(sizeof(Word)) && reinterpret_cast<uint64_t>(to) % sizeof(Word) == 0) {
    *reinterpret_cast<Word*>(to) = word;
  } else if (left > 0) {
    storeMisaligned<Word>(to, left, word);
  }
}

}  // namespace detail

// A unit of 32 packets of 8 bytes, of which 4 are payload: what is fastest for the smallest messages.
// Units are loaded, sent and received by all lanes of a warp together; rows is how much of a slot the message
// uses, size the bytes of this unit.
struct Ll8Unit {
  static constexpr uint32_t kRowPayload = kLanes * sizeof(Ll8Packet::Payload);
  static constexpr uint32_t kSlotSize = kLanes * sizeof(Ll8Packet);

  FLUXCCL_DEVICE void load(uint32_t, const uint8_t* from, uint32_t size) {
    payload_ = detail::loadWord<uint32_t>(from + offset(), left(size));
  }

  FLUXCCL_DEVICE void send(uint32_t, uint8_t* slot, uint32_t size, uint32_t flag) const {
    if (left(size) > 0) {
      reinterpret_cast<Ll8Packet*>(slot)[laneId()].write(payload_, flag);
    }
  }

  // Waits until it is in the slot. False, for all lanes, when the job was aborted.
  FLUXCCL_DEVICE bool receive(uint32_t, const uint8_t* slot, uint32_t size, uint32_t flag,
                              AbortFlag* abort, int peer) {
    const Ll8Packet& packet = reinterpret_cast<const Ll8Packet*>(slot)[laneId()];
    SpinWait wait(abort, peer);
    while (!__all_sync(kAllLanes, left(size) <= 0 || packet.tryRead(flag, payload_))) {
      if (!__all_sync(kAllLanes, wait.goOn())) {
        return false;
      }
    }
    return true;
  }

  FLUXCCL_DEVICE void store(uint32_t, uint8_t* to, uint32_t size) const {
    if (left(size) > 0) {
      detail::storeWord<uint32_t>(to + offset(), left(size), payload_);
    }
  }

 private:
  FLUXCCL_DEVICE static uint32_t offset() { return laneId() * sizeof(Ll8Packet::Payload); }

  // Bytes from this lane's payload to the end of the message.
  FLUXCCL_DEVICE static int32_t left(uint32_t size) {
    return static_cast<int32_t>(size) - static_cast<int32_t>(offset());
  }

  Ll8Packet::Payload payload_;
};

// A unit of up to 16 lines of 128 bytes, of which 120 are payload and the last 8 are the flag, twice. A row is
// the 4 lines that a warp moves at once. Short messages have one row a unit, so that more warps share them.
struct Ll128Unit {
  static constexpr uint32_t kLine = 128;
  static constexpr uint32_t kLinePayload = 120;
  static constexpr uint32_t kLanesPerLine = 8;
  static constexpr uint32_t kRowLines = kLanes / kLanesPerLine;
  static constexpr uint32_t kRowPayload = kRowLines * kLinePayload;
  static constexpr uint32_t kMaxRows = 4;
  static constexpr uint32_t kSlotSize = kMaxRows * kRowLines * kLine;

  FLUXCCL_DEVICE void load(uint32_t rows, const uint8_t* from, uint32_t size) {
    if (rows == 1) {
      loadRows<1>(from, size);
    } else {
      loadRows<kMaxRows>(from, size);
    }
  }

  FLUXCCL_DEVICE void send(uint32_t rows, uint8_t* slot, uint32_t size, uint32_t flag) {
#pragma unroll
    for (uint32_t row = 0; row < kMaxRows; ++row) {
      if (row < rows && isUsed(row, size)) {
        if (isLastOfLine()) {
          values_[row].z = flag;
          values_[row].w = flag;
        }
        storeLineRelaxedSys(packet(slot, row), values_[row]);
      }
    }
  }

  FLUXCCL_DEVICE bool receive(uint32_t rows, const uint8_t* slot, uint32_t size, uint32_t flag,
                              AbortFlag* abort, int peer) {
    return rows == 1 ? receiveRows<1>(slot, size, flag, abort, peer)
                     : receiveRows<kMaxRows>(slot, size, flag, abort, peer);
  }

  FLUXCCL_DEVICE void store(uint32_t rows, uint8_t* to, uint32_t size) const {
#pragma unroll
    for (uint32_t row = 0; row < kMaxRows; ++row) {
      if (row < rows && isUsed(row, size)) {
        const uint32_t offset = offsetOf(row);
        const int32_t left = static_cast<int32_t>(size) - static_cast<int32_t>(offset);
        detail::storeWord<uint64_t>(to + offset, left,
                                    static_cast<uint64_t>(values_[row].y) << 32 | values_[row].x);
        if (!isLastOfLine()) {
          detail::storeWord<uint64_t>(to + offset + 8, left - 8,
                                      static_cast<uint64_t>(values_[row].w) << 32 | values_[row].z);
        }
      }
    }
  }

 private:
  FLUXCCL_DEVICE static uint32_t lineOf(uint32_t row) {
    return row * kRowLines + laneId() / kLanesPerLine;
  }

  // Where this lane's payload lies in the message: the last lane of a line has 8 bytes, the others 16.
  FLUXCCL_DEVICE static uint32_t offsetOf(uint32_t row) {
    return lineOf(row) * kLinePayload + laneId() % kLanesPerLine * 16;
  }

  // Alike for all lanes of a line.
  FLUXCCL_DEVICE static bool isUsed(uint32_t row, uint32_t size) {
    return lineOf(row) * kLinePayload < size;
  }

  FLUXCCL_DEVICE static bool isLastOfLine() { return laneId() % kLanesPerLine == kLanesPerLine - 1; }

  FLUXCCL_DEVICE static uint4* packet(uint8_t* slot, uint32_t row) {
    return reinterpret_cast<uint4*>(slot) + row * kLanes + laneId();
  }

  FLUXCCL_DEVICE static const uint4* packet(const uint8_t* slot, uint32_t row) {
    return reinterpret_cast<const uint4*>(slot) + row * kLanes + laneId();
  }

  template <uint32_t kRows>
  FLUXCCL_DEVICE void loadRows(const uint8_t* from, uint32_t size) {
#pragma unroll
    for (uint32_t row = 0; row < kRows; ++row) {
      const uint32_t offset = offsetOf(row);
      const int32_t left = static_cast<int32_t>(size) - static_cast<int32_t>(offset);
      const uint64_t first = detail::loadWord<uint64_t>(from + offset, left);
      const uint64_t second =
          isLastOfLine() ? 0 : detail::loadWord<uint64_t>(from + offset + 8, left - 8);
      values_[row] = make_uint4(static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32),
                                static_cast<uint32_t>(second), static_cast<uint32_t>(second >> 32));
    }
  }

  template <uint32_t kRows>
  FLUXCCL_DEVICE bool receiveRows(const uint8_t* slot, uint32_t size, uint32_t flag, AbortFlag* abort,
                                  int peer) {
    SpinWait wait(abort, peer);
    while (true) {
      bool there = true;
      // All rows in each round: waiting for one after the other would cost a round trip each.
#pragma unroll
      for (uint32_t row = 0; row < kRows; ++row) {
        if (isUsed(row, size)) {
          values_[row] = loadLineRelaxedSys(packet(slot, row));
          there &= !isLastOfLine() || (values_[row].z == flag && values_[row].w == flag);
        }
      }
      if (__all_sync(kAllLanes, there)) {
        return true;
      }
      if (!__all_sync(kAllLanes, wait.goOn())) {
        return false;
      }
    }
  }

  uint4 values_[kMaxRows];
};

// What a block knows of a pair at the beginning of a launch.
struct PairProgress {
  uint64_t sent;
  uint64_t received;
  uint64_t begun;
  uint64_t awaited;
};

// One launch: the state of all rings of one kind of units.
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
    if (going && isLastWarp()) {
      end(readersBefore);
    }
  }

  // A send-receive: there are as many warps that only send as warps that only receive, so that neither
  // direction waits for the other; the host sees to that. A large message goes straight into the output that
  // its receiver offers, if it offers one. The ring counts its units all the same, on both sides.
  FLUXCCL_DEVICE void runPair() {
    Unit first;
    begin(first);
    const uint32_t readersBefore = countReader();
    copyOwn();
    bool going = true;
    if (firstPosition() < positions()) {
      const uint32_t index = firstPosition() % parts_.nParts;
      const Way way = !parts_.parts[index].isLarge             ? Way::RING
                      : parts_.parts[index].sendUnits > 0 ? sendWhole(index)
                                                          : receiveWhole(index);
      going = way == Way::RING ? send(firstPosition(), first) && passOn() : way == Way::WHOLE;
    }
    if (going && isLastWarp()) {
      end(readersBefore);
    }
  }

 private:
  enum class Way { RING, WHOLE, ABORTED };

  FLUXCCL_DEVICE static uint32_t warps() { return blockDim.x / kLanes * gridDim.x; }

  FLUXCCL_DEVICE uint32_t positions() const { return parts_.maxUnits * parts_.nParts; }

  // Of this warp. Neighbours go to different blocks: a multiprocessor has only so much of the links.
  FLUXCCL_DEVICE static uint32_t firstPosition() {
    return threadIdx.x / kLanes * gridDim.x + blockIdx.x;
  }

  // Sends and receives this warp's positions, of which the first has been sent. False when the job was aborted.
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

  // The word for a slot that lies at the sender and that the receiver raises.
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

  // Reads the counters and, while they are on their way, what is to be sent first.
  FLUXCCL_DEVICE void begin(Unit& first) {
    const uint32_t i = threadIdx.x;
    const bool hasPart = i < parts_.nParts;
    const int peer = hasPart ? parts_.parts[i].peer : peers_.rank;
    RingCounters* mine = counters(peers_.rank);
    // Relaxed, because another block writes them in end(): not before these loads have got their values,
    // which then lie in shared memory, and all blocks have said so.
    const PairProgress progress = {
        loadRelaxedGpu(&mine->sent[peer]), loadRelaxedGpu(&mine->received[peer]),
        loadRelaxedSys(&mine->begun[peer]), loadRelaxedGpu(&mine->awaited[peer])};
    if (firstPosition() < positions()) {
      load(firstPosition(), first);
    }
    if (hasPart) {
      progress_[i] = progress;
      if (blockIdx.x == 0 && parts_.parts[i].receiveUnits > 0) {
        // Before anything in this launch can wait. The launches that read those slots have ended, so this
        // orders nothing; pairs with the load above and in awaitSlot, at the peer.
        storeRelaxedSys(&counters(peer)->begun[peers_.rank], progress.received);
        if (parts_.parts[i].isLarge) {
          offer(i);
        }
      }
    }
    __syncthreads();
  }

  FLUXCCL_DEVICE bool isLastWarp() const {
    return threadIdx.x / kLanes == blockDim.x / kLanes - 1;
  }

  // Tells that this block has read the counters; in the first lane of the last warp, how many had before.
  // Called early and looked at late, because the answer takes as long as a packet.
  FLUXCCL_DEVICE uint32_t countReader() {
    return gridDim.x > 1 && isLastWarp() && laneId() == 0
               ? fetchAddRelaxedGpu(&counters(peers_.rank)->readers, 1u)
               : 0;
  }

  // By the last warp of a block: the next launch counts on. The block that read the counters last writes
  // that, because then all have.
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
      if (part.receiveUnits > 0 && part.isLarge && part.offer != 0) {
        storeRelaxedGpu(&mine->awaited[part.peer], progress_[i].awaited + part.receiveBytes);
      }
    }
    if (i == 0) {
      storeRelaxedGpu(&mine->readers, 0u);
    }
  }

  FLUXCCL_DEVICE void copyOwn() {
    if (parts_.ownBytes > 0) {
      copy<16, true, 2>(parts_.ownTo, parts_.ownFrom, parts_.ownBytes, blockIdx.x * blockDim.x + threadIdx.x,
               gridDim.x * blockDim.x);
    }
  }

  // A unit of a part's bytes in one direction; all lanes of a warp have the same.
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

  // False when the job was aborted.
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

  // Waits until the unit that lay in the slot before has been taken.
  FLUXCCL_DEVICE bool awaitSlot(uint32_t index, uint64_t number) {
    const int peer = parts_.parts[index].peer;
    const uint64_t needed = number + 1 - parts_.slots;
    const uint64_t* word = needed > progress_[index].sent
                               ? emptied(peers_.rank, peer, slotOf(number))
                               : &counters(peers_.rank)->begun[peer];
    // Pairs with the stores in receive and begin at the peer. Relaxed on both sides, because nothing but
    // loads came before those stores, and they had got their values.
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
    // Only if this message needs the slot again; of the others the next launch tells. All lanes have their
    // packets, because receive votes on that. Pairs with awaitSlot.
    if (unit + static_cast<uint64_t>(parts_.slots) < part.receiveUnits && laneId() == 0) {
      storeRelaxedSys(emptied(part.peer, peers_.rank, slot), number + 1);
    }
    values.store(part.receiveRows, part.to + bytes.offset, bytes.size);
    return true;
  }

  // Tells the sender of a large message where to put it.
  FLUXCCL_DEVICE void offer(uint32_t index) {
    const ExchangeParts::Part& part = parts_.parts[index];
    RingCounters::Offer* offer = &counters(part.peer)->offers[peers_.rank];
    storeRelaxedSys(&offer->where, part.offer);
    // Pairs with the acquire in sendWhole at the peer, which so sees where; and whatever this stream did with
    // the output before has been done.
    storeReleaseSys(&offer->message, progress_[index].received + 1);
  }

  // Puts this warp's share of a large message to where its receiver wants it.
  FLUXCCL_DEVICE Way sendWhole(uint32_t index) {
    const ExchangeParts::Part& part = parts_.parts[index];
    const uint64_t senders = warps() / parts_.nParts;
    const uint64_t share = (part.sendBytes / senders / Ll128Unit::kLine + 1) * Ll128Unit::kLine;
    const uint64_t begin = firstPosition() / parts_.nParts * share;
    const RingCounters::Offer* offer = &counters(peers_.rank)->offers[part.peer];
    const uint64_t message = progress_[index].sent + 1;
    // Pairs with the release in offer() at the peer. A later offer means that this message has come, so that
    // this warp had no share in it.
    bool isThere = waitUntil(peers_.abort, part.peer,
                             [=] { return loadAcquireSys(&offer->message) >= message; });
    if (!__all_sync(kAllLanes, isThere)) {
      return Way::ABORTED;
    }
    const uint64_t where = loadRelaxedSys(&offer->where);
    if (where == 0) {
      return Way::RING;
    }
    const uint64_t* known = parts_.registrations +
                            ((where >> ExchangeParts::kOfferOffsetBits) - 1) * MappedPeers::kMaxRanks +
                            part.peer;
    // The receiver may be done with registering before this rank is.
    isThere = waitUntil(peers_.abort, part.peer, [=] { return loadRelaxedSys(known) != 0; });
    if (!__all_sync(kAllLanes, isThere)) {
      return Way::ABORTED;
    }
    if (begin < part.sendBytes) {
      const uint64_t offset = where & ((1ull << ExchangeParts::kOfferOffsetBits) - 1);
      uint8_t* output = reinterpret_cast<uint8_t*>(loadRelaxedSys(known)) + offset;
      const uint64_t left = part.sendBytes - begin;
      const uint64_t size = left < share ? left : share;
      copy<16, true, 4>(output + begin, part.from + begin, size, laneId(), kLanes);
      // Makes the release stand for all lanes; pairs with the acquire in receiveWhole at the peer.
      __syncwarp();
      if (laneId() == 0) {
        addReleaseSys(&counters(part.peer)->arrived[peers_.rank], size);
      }
    }
    return Way::WHOLE;
  }

  // Waits for a large message in the output; one warp does for all.
  FLUXCCL_DEVICE Way receiveWhole(uint32_t index) {
    const ExchangeParts::Part& part = parts_.parts[index];
    if (part.offer == 0) {
      return Way::RING;
    }
    if (firstPosition() >= parts_.nParts) {
      return Way::WHOLE;
    }
    const uint64_t awaited = progress_[index].awaited + part.receiveBytes;
    const uint64_t* arrived = &counters(peers_.rank)->arrived[part.peer];
    const bool isThere =
        waitUntil(peers_.abort, part.peer, [=] { return loadAcquireSys(arrived) >= awaited; });
    return __all_sync(kAllLanes, isThere) ? Way::WHOLE : Way::ABORTED;
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

FLUXCCL_DEVICE void sendAndReceive(const MappedPeers& peers, const ExchangeParts& parts) {
  __shared__ PairProgress progress[ExchangeParts::kMaxParts];
  awaitLaunchBefore();
  letNextLaunchBegin();
  PacketExchange<Ll128Unit>(peers, parts, progress).runPair();
}

}  // namespace collectives
}  // namespace fluxccl
