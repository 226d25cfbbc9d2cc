// SPDX-License-Identifier: Apache-2.0
// The low-latency packet formats: each unit that is stored at once carries its own flag, so the
// receiver needs no other signal. Twin of PacketType.
//
//   LL8    data  flag                  8 bytes for 4 of payload
//   LL16   data1 flag  data2 flag     16 bytes for 8 of payload
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "poll.cuh"

namespace fluxccl {

enum class PacketType {
  // 4 bytes of payload and a flag.
  LL8,
  // 8 bytes of payload and two flags.
  LL16,
};

struct alignas(8) Ll8Packet {
  using Payload = uint32_t;

  uint32_t data;
  uint32_t flag;

#if defined(FLUXCCL_CUDA)

  // Data and flag in one store: a reader that sees the flag also sees the data, so packets need no
  // order between them.
  FLUXCCL_DEVICE void write(Payload payload, uint32_t newFlag) {
    storeRelaxedSys(reinterpret_cast<uint64_t*>(this),
                    static_cast<uint64_t>(newFlag) << 32 | payload);
  }

  // Reads the payload if the packet carries the flag.
  FLUXCCL_DEVICE bool tryRead(uint32_t awaited, Payload& payload) const {
    const uint64_t word = loadRelaxedSys(reinterpret_cast<const uint64_t*>(this));
    payload = static_cast<uint32_t>(word);
    return static_cast<uint32_t>(word >> 32) == awaited;
  }

#endif  // FLUXCCL_CUDA
};

struct alignas(16) Ll16Packet {
  using Payload = uint64_t;

  uint32_t data1;
  uint32_t flag1;
  uint32_t data2;
  uint32_t flag2;

#if defined(FLUXCCL_CUDA)

  // Two words, each with its own flag, so that correctness does not depend on a single store of 16
  // bytes.
  FLUXCCL_DEVICE void write(Payload payload, uint32_t newFlag) {
    const uint64_t high = static_cast<uint64_t>(newFlag) << 32;
    storeWordsRelaxedSys(this, high | (payload & 0xffffffffu), high | payload >> 32);
  }

  // Reads the payload if both words carry the flag.
  FLUXCCL_DEVICE bool tryRead(uint32_t awaited, Payload& payload) const {
    uint64_t low;
    uint64_t high;
    loadWordsRelaxedSys(this, low, high);
    payload = (high << 32) | (low & 0xffffffffu);
    return static_cast<uint32_t>(low >> 32) == awaited &&
           static_cast<uint32_t>(high >> 32) == awaited;
  }

#endif  // FLUXCCL_CUDA
};

// MSCCL++'s names.
using LL8Packet = Ll8Packet;
using LL16Packet = Ll16Packet;

FLUXCCL_ASSERT_OFFSET(Ll8Packet, data, 0);
FLUXCCL_ASSERT_OFFSET(Ll8Packet, flag, 4);
FLUXCCL_ASSERT_SIZE(Ll8Packet, 8);
FLUXCCL_ASSERT_OFFSET(Ll16Packet, data1, 0);
FLUXCCL_ASSERT_OFFSET(Ll16Packet, flag1, 4);
FLUXCCL_ASSERT_OFFSET(Ll16Packet, data2, 8);
FLUXCCL_ASSERT_OFFSET(Ll16Packet, flag2, 12);
FLUXCCL_ASSERT_SIZE(Ll16Packet, 16);

// The packet of a type; it is twice as long as its payload.
template <PacketType kType>
struct PacketOf;

template <>
struct PacketOf<PacketType::LL8> {
  using Type = Ll8Packet;
};

template <>
struct PacketOf<PacketType::LL16> {
  using Type = Ll16Packet;
};

#if defined(FLUXCCL_CUDA)

// Writes size bytes at from as packets to packets; numThreads threads call it together, each with
// its own threadId. size, and the address from, are multiples of the payload. The flag must differ
// from the one that the slots already hold.
template <class Packet = Ll16Packet>
FLUXCCL_DEVICE void putPackets(void* packets, const void* from, uint64_t size, uint32_t threadId,
                               uint32_t numThreads, uint32_t flag) {
  Packet* out = static_cast<Packet*>(packets);
  const auto* in = static_cast<const typename Packet::Payload*>(from);
  const uint64_t count = size / sizeof(typename Packet::Payload);
#pragma unroll 4
  for (uint64_t i = threadId; i < count; i += numThreads) {
    out[i].write(in[i], flag);
  }
}

template <PacketType kType>
FLUXCCL_DEVICE void putPackets(void* packets, const void* from, uint64_t size, uint32_t threadId,
                               uint32_t numThreads, uint32_t flag) {
  putPackets<typename PacketOf<kType>::Type>(packets, from, size, threadId, numThreads, flag);
}

// Takes size bytes of payload out of packets, waiting for each until it carries the flag, and
// writes them to to. If both sides call it with the same number of threads, each thread takes what
// the thread of the same id has written. Returns true when all packets of this thread have arrived;
// false if the communicator was aborted.
template <class Packet = Ll16Packet>
FLUXCCL_DEVICE bool getPackets(void* to, const void* packets, uint64_t size, uint32_t threadId,
                               uint32_t numThreads, uint32_t flag, AbortFlag* abort, int64_t peer) {
  constexpr int kUnroll = 4;
  const Packet* in = static_cast<const Packet*>(packets);
  auto* out = static_cast<typename Packet::Payload*>(to);
  const uint64_t count = size / sizeof(typename Packet::Payload);
  const uint64_t stride = numThreads;
  for (uint64_t at = threadId; at < count; at += kUnroll * stride) {
    typename Packet::Payload payloads[kUnroll];
    SpinWait wait(abort, peer);
    while (true) {
      // All of them in each round: waiting for one after the other would cost a round trip each.
      bool ready = true;
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        if (at + i * stride < count) {
          ready &= in[at + i * stride].tryRead(flag, payloads[i]);
        }
      }
      if (ready) {
        break;
      }
      if (!wait.goOn()) {
        return false;
      }
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (at + i * stride < count) {
        out[at + i * stride] = payloads[i];
      }
    }
  }
  return true;
}

template <PacketType kType>
FLUXCCL_DEVICE bool getPackets(void* to, const void* packets, uint64_t size, uint32_t threadId,
                               uint32_t numThreads, uint32_t flag, AbortFlag* abort, int64_t peer) {
  return getPackets<typename PacketOf<kType>::Type>(to, packets, size, threadId, numThreads, flag,
                                                    abort, peer);
}

#endif  // FLUXCCL_CUDA

}  // namespace fluxccl
