// SPDX-License-Identifier: Apache-2.0
// Rows of packets. A row is the unit that a warp stores, sends and polls at once. A packet itself shows
// whether it has arrived, so no separate flag is needed. There are three kinds, each in areas of its own:
//
//   LL8        32 x (4 bytes of payload, 4 bytes epoch)       the least latency, half of the bytes are lost
//   LL128      4 x (120 bytes of payload, 8 bytes epoch)      a line of 128 bytes is stored as a whole; NVLink only
//   sentinel   512 bytes of payload                           slots hold the sentinel while they are empty
//
// A sentinel is a word of ones. In floating-point payload it can only be a NaN; such a NaN is sent as a
// different NaN. The reader of a row empties it.
#pragma once

#include <fluxccl/packet.cuh>
#include <fluxccl/ptx.cuh>

#include "mapped_peers.cuh"

namespace fluxccl {
namespace collectives {

struct Ll8Rows {
  // The type that a lane sends of a row, and the type that it loads.
  using Word = uint32_t;
  using Raw = uint64_t;

  // Bytes of payload in a row, and bytes of the row.
  static constexpr uint32_t kPayload = 128;
  static constexpr uint32_t kSize = 256;
  // Unit in which payload is loaded and stored if its address is a multiple of the unit.
  static constexpr uint32_t kUnit = 4;
  // Number of ranks whose rows are received at once; registers limit it.
  static constexpr int kSources = 8;

  // Offset and length of a lane's bytes in the payload of a row.
  static FLUXCCL_DEVICE uint32_t offset(uint32_t lane) { return lane * 4; }
  static FLUXCCL_DEVICE uint32_t length(uint32_t lane) { return 4; }

  static FLUXCCL_DEVICE void send(uint8_t* row, uint32_t lane, Word word, uint32_t epoch) {
    reinterpret_cast<Ll8Packet*>(row)[lane].write(word, epoch);
  }
  static FLUXCCL_DEVICE Raw load(const uint8_t* row, uint32_t lane) {
    return loadRelaxedSys(reinterpret_cast<const uint64_t*>(row) + lane);
  }
  // Returns whether a lane's part of the row has arrived.
  static FLUXCCL_DEVICE bool hasArrived(Raw raw, uint32_t lane, uint32_t epoch) {
    return static_cast<uint32_t>(raw >> 32) == epoch;
  }
  static FLUXCCL_DEVICE Word wordOf(Raw raw) { return static_cast<uint32_t>(raw); }
  // Makes the row ready for the epoch after next.
  static FLUXCCL_DEVICE void empty(uint8_t* row, uint32_t lane) {}
  // Returns the word as its receivers will see it.
  static FLUXCCL_DEVICE Word asSent(Word word) { return word; }
};

struct Ll128Rows {
  using Word = uint4;
  using Raw = uint4;

  static constexpr uint32_t kPayload = 480;
  static constexpr uint32_t kSize = 512;
  static constexpr uint32_t kUnit = 8;
  static constexpr int kSources = 8;

  static FLUXCCL_DEVICE uint32_t offset(uint32_t lane) { return lane / 8 * 120 + lane % 8 * 16; }
  static FLUXCCL_DEVICE uint32_t length(uint32_t lane) { return lane % 8 == 7 ? 8 : 16; }

  static FLUXCCL_DEVICE void send(uint8_t* row, uint32_t lane, Word word, uint32_t epoch) {
    if (lane % 8 == 7) {
      word.z = epoch;
      word.w = epoch;
    }
    storeLineRelaxedSys(reinterpret_cast<uint4*>(row) + lane, word);
  }
  static FLUXCCL_DEVICE Raw load(const uint8_t* row, uint32_t lane) {
    return loadLineRelaxedSys(reinterpret_cast<const uint4*>(row) + lane);
  }
  // Only one lane of a line has the flag.
  static FLUXCCL_DEVICE bool hasArrived(const Raw& raw, uint32_t lane, uint32_t epoch) {
    return lane % 8 != 7 || raw.w == epoch;
  }
  static FLUXCCL_DEVICE Word wordOf(const Raw& raw) { return raw; }
  static FLUXCCL_DEVICE void empty(uint8_t* row, uint32_t lane) {}
  static FLUXCCL_DEVICE Word asSent(const Word& word) { return word; }
};

// For floating-point elements. kElementSize determines the sentinel, because one half of a binary64 may
// consist of ones. Each word of 4 bytes, or of 8 for a binary64, has a sentinel of its own and is accessed at
// once, which PTX promises on every link. So words of a row may arrive apart and in any order.
template <int kElementSize>
struct SentinelRows {
  using Word = uint4;
  using Raw = uint4;

  static constexpr uint32_t kPayload = 512;
  static constexpr uint32_t kSize = 512;
  static constexpr uint32_t kUnit = 16;
  static constexpr int kSources = 4;

  static FLUXCCL_DEVICE uint32_t offset(uint32_t lane) { return lane * 16; }
  static FLUXCCL_DEVICE uint32_t length(uint32_t lane) { return 16; }

  static FLUXCCL_DEVICE void send(uint8_t* row, uint32_t lane, const Word& word, uint32_t epoch) {
    uint4* const packet = reinterpret_cast<uint4*>(row) + lane;
    const Word sent = asSent(word);
    if (kElementSize == 8) {
      storeWordsRelaxedSys(packet, sent.x | static_cast<uint64_t>(sent.y) << 32,
                           sent.z | static_cast<uint64_t>(sent.w) << 32);
    } else {
      storeRelaxedSys(packet, sent);
    }
  }
  static FLUXCCL_DEVICE Raw load(const uint8_t* row, uint32_t lane) {
    const uint4* const packet = reinterpret_cast<const uint4*>(row) + lane;
    if (kElementSize == 8) {
      uint64_t low;
      uint64_t high;
      loadWordsRelaxedSys(packet, low, high);
      return make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                        static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32));
    }
    return loadRelaxedSys(packet);
  }
  static FLUXCCL_DEVICE bool hasArrived(const Raw& raw, uint32_t lane, uint32_t epoch) {
    if (kElementSize == 8) {
      return (raw.x & raw.y) != kOnes && (raw.z & raw.w) != kOnes;
    }
    return raw.x != kOnes && raw.y != kOnes && raw.z != kOnes && raw.w != kOnes;
  }
  static FLUXCCL_DEVICE Word wordOf(const Raw& raw) { return raw; }
  static FLUXCCL_DEVICE void empty(uint8_t* row, uint32_t lane) {
    // The slot is empty before the peer writes there again: in the epoch in between, the peer waits for data
    // of this rank's next launch, which runs after this one.
    storeRelaxedSys(reinterpret_cast<uint4*>(row) + lane, make_uint4(kOnes, kOnes, kOnes, kOnes));
  }
  static FLUXCCL_DEVICE Word asSent(Word word) {
    if (kElementSize == 8) {
      word.y = (word.x & word.y) == kOnes ? kOtherNan : word.y;
      word.w = (word.z & word.w) == kOnes ? kOtherNan : word.w;
    } else {
      word.x = otherThanOnes(word.x);
      word.y = otherThanOnes(word.y);
      word.z = otherThanOnes(word.z);
      word.w = otherThanOnes(word.w);
    }
    return word;
  }

 private:
  static constexpr uint32_t kOnes = 0xffffffffu;
  // The sign of each element is cleared: still NaNs, of the same payload.
  static constexpr uint32_t kOtherNan =
      kElementSize == 1 ? 0x7f7f7f7fu : kElementSize == 2 ? 0x7fff7fffu : 0x7fffffffu;

  static FLUXCCL_DEVICE uint32_t otherThanOnes(uint32_t word) { return word == kOnes ? kOtherNan : word; }
};

// Returns whether a whole row has arrived. The warp votes: if lanes left a wait one by one, they would
// continue one by one.
template <class Rows>
FLUXCCL_DEVICE bool isThere(const typename Rows::Raw& raw, uint32_t lane, uint32_t epoch) {
  return __all_sync(kAllLanes, Rows::hasArrived(raw, lane, epoch));
}

// Number of polls before a wait becomes a long wait; they take some hundred microseconds. A long wait checks
// the abort flag from time to time and records the rank for which it waits.
constexpr int kRoundsBeforeLooking = 512;

// Waits until a row has arrived, without a time limit. Returns false if the job was aborted.
template <class Rows>
FLUXCCL_DEVICE_CALL bool awaitRow(AbortFlag* abort, int peer, const uint8_t* row, uint32_t lane, uint32_t epoch) {
  SpinWait wait(abort, peer);
  while (!isThere<Rows>(Rows::load(row, lane), lane, epoch)) {
    if (!__all_sync(kAllLanes, wait.goOn())) {
      return false;
    }
  }
  return true;
}

// Receives several rows; wanted has one bit for each. rowOf(i) is the address of row i, peerOf(i) its sender.
// A row is no longer polled once it has arrived. Returns false if the job was aborted.
template <class Rows, int kCount, class RowOf, class PeerOf>
FLUXCCL_DEVICE bool receiveRows(const MappedPeers& peers, uint32_t wanted, uint32_t lane,
                                uint32_t epoch, RowOf rowOf, PeerOf peerOf,
                                typename Rows::Raw (&raws)[kCount]) {
  for (int round = 0; wanted != 0; ++round) {
    // All loads are in flight before the first result is used.
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (wanted >> i & 1) {
        raws[i] = Rows::load(rowOf(i), lane);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if ((wanted >> i & 1) && isThere<Rows>(raws[i], lane, epoch)) {
        wanted &= ~(1u << i);
      }
    }
    if (round >= kRoundsBeforeLooking && wanted != 0) {
      const int missing = __ffs(wanted) - 1;
      if (!awaitRow<Rows>(peers.abort, peerOf(missing), rowOf(missing), lane, epoch)) {
        return false;
      }
    }
  }
  return true;
}

// Receives one row. Returns false if the job was aborted.
template <class Rows>
FLUXCCL_DEVICE bool receiveRow(AbortFlag* abort, int peer, const uint8_t* row, uint32_t lane, uint32_t epoch,
                               typename Rows::Raw& raw) {
  do {
#pragma unroll 1
    for (int round = 0; round < kRoundsBeforeLooking; ++round) {
      raw = Rows::load(row, lane);
      if (isThere<Rows>(raw, lane, epoch)) {
        return true;
      }
    }
  } while (awaitRow<Rows>(abort, peer, row, lane, epoch));
  return false;
}

// Bytes of a buffer from which rows are loaded and to which they are stored; elements are of type T.
template <typename T>
struct Piece {
  uint8_t* begin;
  uint64_t size;

  // Loads a lane's word of a row; zeros beyond the end.
  template <class Rows>
  FLUXCCL_DEVICE typename Rows::Word load(uint32_t row, uint32_t lane) const {
    typename Rows::Word word = {};
    const uint64_t at = static_cast<uint64_t>(row) * Rows::kPayload + Rows::offset(lane);
    const uint32_t length = Rows::length(lane);
    if (areUnits<Rows>() && at + length <= size) {
      loadUnits<Rows>(word, begin + at, length);
    } else if (at < size) {
      word = loadElements<typename Rows::Word>(begin + at, static_cast<uint32_t>(min(size - at, uint64_t{length})));
    }
    return word;
  }

  // Stores a lane's word of a row; nothing beyond the end.
  template <class Rows>
  FLUXCCL_DEVICE void store(uint32_t row, uint32_t lane, const typename Rows::Word& word) const {
    const uint64_t at = static_cast<uint64_t>(row) * Rows::kPayload + Rows::offset(lane);
    const uint32_t length = Rows::length(lane);
    if (areUnits<Rows>() && at + length <= size) {
      storeUnits<Rows>(begin + at, word, length);
    } else if (at < size) {
      storeElements(begin + at, word, static_cast<uint32_t>(min(size - at, uint64_t{length})));
    }
  }

 private:
  template <class Rows>
  FLUXCCL_DEVICE bool areUnits() const {
    return reinterpret_cast<uint64_t>(begin) % Rows::kUnit == 0;
  }

  // One element at a time: slow, but rarely needed, and small code.
  template <typename Word>
  static FLUXCCL_DEVICE_CALL Word loadElements(const uint8_t* from, uint32_t bytes) {
    uint8_t elements[sizeof(Word)] = {};
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; i += sizeof(T)) {
      const T element = *reinterpret_cast<const T*>(from + i);
      memcpy(elements + i, &element, sizeof(T));
    }
    Word word;
    memcpy(&word, elements, sizeof(word));
    return word;
  }
  template <typename Word>
  static FLUXCCL_DEVICE_CALL void storeElements(uint8_t* to, Word word, uint32_t bytes) {
    uint8_t elements[sizeof(Word)];
    memcpy(elements, &word, sizeof(word));
#pragma unroll 1
    for (uint32_t i = 0; i < bytes; i += sizeof(T)) {
      T element;
      memcpy(&element, elements + i, sizeof(T));
      *reinterpret_cast<T*>(to + i) = element;
    }
  }

  template <class Rows>
  static FLUXCCL_DEVICE void loadUnits(uint32_t& word, const uint8_t* from, uint32_t length) {
    word = *reinterpret_cast<const uint32_t*>(from);
  }
  template <class Rows>
  static FLUXCCL_DEVICE void storeUnits(uint8_t* to, uint32_t word, uint32_t length) {
    *reinterpret_cast<uint32_t*>(to) = word;
  }
  template <class Rows>
  static FLUXCCL_DEVICE void loadUnits(uint4& word, const uint8_t* from, uint32_t length) {
    if (Rows::kUnit == 16) {
      word = *reinterpret_cast<const uint4*>(from);
    } else {
      const uint2 low = reinterpret_cast<const uint2*>(from)[0];
      const uint2 high = length == 16 ? reinterpret_cast<const uint2*>(from)[1] : make_uint2(0, 0);
      word = make_uint4(low.x, low.y, high.x, high.y);
    }
  }
  template <class Rows>
  static FLUXCCL_DEVICE void storeUnits(uint8_t* to, const uint4& word, uint32_t length) {
    if (Rows::kUnit == 16) {
      *reinterpret_cast<uint4*>(to) = word;
    } else {
      reinterpret_cast<uint2*>(to)[0] = make_uint2(word.x, word.y);
      if (length == 16) {
        reinterpret_cast<uint2*>(to)[1] = make_uint2(word.z, word.w);
      }
    }
  }
};

}  // namespace collectives
}  // namespace fluxccl
