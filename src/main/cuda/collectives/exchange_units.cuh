// SPDX-License-Identifier: Apache-2.0
// Units of packets, which exchange_packets.cuh sends through rings. A unit is what a warp loads, sends,
// receives and stores at once. It can have any number of bytes and any address. Rows are sent whole, also the
// last one, because exchange_short.cuh waits for whole rows.
#pragma once

#include <fluxccl/atomics.cuh>
#include <fluxccl/config.cuh>
#include <fluxccl/packet.cuh>
#include <fluxccl/poll.cuh>
#include <fluxccl/ptx.cuh>

#include "mapped_peers.cuh"

namespace fluxccl {
namespace collectives {

namespace detail {

// Loads a word of 8 or 4 bytes in units of type U.
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

// Loads the word at any address. Only its first `left` bytes exist; the others are zeros.
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

// A unit of 32 packets of 8 bytes, of which 4 are payload: the fastest kind for the smallest messages. All
// lanes of a warp load, send and receive a unit together. Parameters: rows is the number of rows of a slot
// that the message uses, size the number of bytes of this unit.
struct Ll8Unit {
  static constexpr uint32_t kRowPayload = kLanes * sizeof(Ll8Packet::Payload);
  static constexpr uint32_t kSlotSize = kLanes * sizeof(Ll8Packet);

  FLUXCCL_DEVICE void load(uint32_t, const uint8_t* from, uint32_t size) {
    payload_ = detail::loadWord<uint32_t>(from + offset(), left(size));
  }

  FLUXCCL_DEVICE void send(uint32_t, uint8_t* slot, uint32_t, uint32_t flag) const {
    reinterpret_cast<Ll8Packet*>(slot)[laneId()].write(payload_, flag);
  }

  // Waits until the unit is in the slot. Returns false, to all lanes, if the job was aborted.
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
      if (row < rows && row * kRowPayload < size) {
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

  // Offset of this lane's payload in the message: the last lane of a line has 8 bytes, the others 16.
  FLUXCCL_DEVICE static uint32_t offsetOf(uint32_t row) {
    return lineOf(row) * kLinePayload + laneId() % kLanesPerLine * 16;
  }

  // Whether this lane's line of the row contains bytes of the message. Equal for all lanes of a line.
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

}  // namespace collectives
}  // namespace fluxccl
