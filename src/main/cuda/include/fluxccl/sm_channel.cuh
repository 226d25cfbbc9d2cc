// SPDX-License-Identifier: Apache-2.0
// A channel on which a kernel's own threads move the bytes, through the peer's mapped memory. Twin
// of SmChannelDeviceHandle.
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "copy.cuh"
#include "packet.cuh"
#include "semaphore.cuh"

namespace fluxccl {

#if defined(FLUXCCL_CUDA)
namespace detail {

// The unit in which a type of kBytes bytes is loaded and stored at once.
template <int kBytes>
struct WordOf;

template <>
struct WordOf<1> {
  using Type = uint8_t;
};

template <>
struct WordOf<2> {
  using Type = uint16_t;
};

template <>
struct WordOf<4> {
  using Type = uint32_t;
};

template <>
struct WordOf<8> {
  using Type = uint64_t;
};

template <>
struct WordOf<16> {
  using Type = uint4;
};

}  // namespace detail
#endif  // FLUXCCL_CUDA

// A kernel takes it by value. Offsets and sizes are bytes.
//
// All of numThreads threads call put, get and the packet methods together, each with its own
// threadId, and each does its share. One thread calls signal, wait and poll, after a
// __syncthreads() if other threads copied.
struct SmChannel {
  using DeviceHandle = SmChannel;

  SmDevice2DeviceSemaphore semaphore;
  // The peer's memory as mapped here.
  void* target;
  uint64_t targetSize;
  // Local memory.
  void* source;
  uint64_t sourceSize;
  // Local memory in which the peer's packets arrive; null for none.
  void* packets;
  uint64_t packetsSize;

#if defined(FLUXCCL_CUDA)

  // The rank at the other end.
  FLUXCCL_DEVICE int32_t peer() const { return static_cast<int32_t>(semaphore.peer); }

  // Copies from local memory to the peer's. kAlignment, 4, 8 or 16, is the unit in which work is
  // shared out; kCopyRemainder: whether bytes beyond the last whole unit are copied too.
  template <int kAlignment = 16, bool kCopyRemainder = true>
  FLUXCCL_DEVICE void put(uint64_t targetOffset, uint64_t sourceOffset, uint64_t size,
                          uint32_t threadId, uint32_t numThreads) const {
    FLUXCCL_REQUIRE(isWithin(targetOffset, size, targetSize));
    FLUXCCL_REQUIRE(isWithin(sourceOffset, size, sourceSize));
    copy<kAlignment, kCopyRemainder>(at(target, targetOffset), at(source, sourceOffset), size,
                                     threadId, numThreads);
  }

  // Copies from the peer's memory to local memory; otherwise as put.
  template <int kAlignment = 16, bool kCopyRemainder = true>
  FLUXCCL_DEVICE void get(uint64_t targetOffset, uint64_t sourceOffset, uint64_t size,
                          uint32_t threadId, uint32_t numThreads) const {
    FLUXCCL_REQUIRE(isWithin(targetOffset, size, targetSize));
    FLUXCCL_REQUIRE(isWithin(sourceOffset, size, sourceSize));
    copy<kAlignment, kCopyRemainder>(at(source, sourceOffset), at(target, targetOffset), size,
                                     threadId, numThreads);
  }

  // Writes local memory to the peer as packets that each carry the flag. The peer takes them with
  // getPackets from its packet buffer, which must be this channel's target. size, and sourceOffset,
  // are multiples of the payload, targetOffset of the packet. The flag must differ from the one
  // that the slots already hold.
  template <class Packet = Ll16Packet>
  FLUXCCL_DEVICE void putPackets(uint64_t targetOffset, uint64_t sourceOffset, uint64_t size,
                                 uint32_t threadId, uint32_t numThreads, uint32_t flag) const {
    FLUXCCL_REQUIRE(size % sizeof(typename Packet::Payload) == 0);
    FLUXCCL_REQUIRE(isWithin(targetOffset, 2 * size, targetSize));
    FLUXCCL_REQUIRE(isWithin(sourceOffset, size, sourceSize));
    fluxccl::putPackets<Packet>(at(target, targetOffset), at(source, sourceOffset), size, threadId,
                                numThreads, flag);
  }

  template <PacketType kType>
  FLUXCCL_DEVICE void putPackets(uint64_t targetOffset, uint64_t sourceOffset, uint64_t size,
                                 uint32_t threadId, uint32_t numThreads, uint32_t flag) const {
    putPackets<typename PacketOf<kType>::Type>(targetOffset, sourceOffset, size, threadId,
                                               numThreads, flag);
  }

  // Takes the peer's packets out of the local packet buffer, waiting for each until it carries the
  // flag, and writes the payload to local memory. Returns true when all packets of this thread have
  // arrived; false if the communicator was aborted.
  template <class Packet = Ll16Packet>
  FLUXCCL_DEVICE bool getPackets(uint64_t packetOffset, uint64_t sourceOffset, uint64_t size,
                                 uint32_t threadId, uint32_t numThreads, uint32_t flag) const {
    FLUXCCL_REQUIRE(size % sizeof(typename Packet::Payload) == 0);
    FLUXCCL_REQUIRE(isWithin(packetOffset, 2 * size, packetsSize));
    FLUXCCL_REQUIRE(isWithin(sourceOffset, size, sourceSize));
    return fluxccl::getPackets<Packet>(at(source, sourceOffset), at(packets, packetOffset), size,
                                       threadId, numThreads, flag, semaphore.abort, semaphore.peer);
  }

  template <PacketType kType>
  FLUXCCL_DEVICE bool getPackets(uint64_t packetOffset, uint64_t sourceOffset, uint64_t size,
                                 uint32_t threadId, uint32_t numThreads, uint32_t flag) const {
    return getPackets<typename PacketOf<kType>::Type>(packetOffset, sourceOffset, size, threadId,
                                                      numThreads, flag);
  }

  // Reads one T of the peer's memory, at index times sizeof(T), which is 1, 2, 4, 8 or 16 bytes; T
  // is trivially copyable. The peer's memory begins at a multiple of sizeof(T). Up to 8 bytes are
  // one access; 16 bytes are one on today's GPUs, which CUDA does not guarantee.
  template <class T = uint64_t>
  FLUXCCL_DEVICE T read(uint64_t index) const {
    using Word = typename WordOf<T>::Type;
    FLUXCCL_REQUIRE(isWithin(index * sizeof(T), sizeof(T), targetSize));
    const Word word = loadRelaxedSys(static_cast<const Word*>(target) + index);
    Value<T> result;
    memcpy(static_cast<void*>(&result.value), &word, sizeof(T));
    return result.value;
  }

  // Writes one T of the peer's memory; otherwise as read.
  template <class T = uint64_t>
  FLUXCCL_DEVICE void write(uint64_t index, T value) const {
    using Word = typename WordOf<T>::Type;
    FLUXCCL_REQUIRE(isWithin(index * sizeof(T), sizeof(T), targetSize));
    Word word;
    memcpy(&word, &value, sizeof(T));
    storeRelaxedSys(static_cast<Word*>(target) + index, word);
  }

  // Signals to the peer that this thread's earlier writes, and those with which it has
  // synchronised, have arrived.
  FLUXCCL_DEVICE void signal() const { semaphore.signal(); }

  // Like signal, but without ordering earlier writes.
  FLUXCCL_DEVICE void relaxedSignal() const { semaphore.relaxedSignal(); }

  // Waits for the peer's next signal; returns false if the communicator was aborted.
  FLUXCCL_DEVICE bool wait() const { return semaphore.wait(); }

  // Takes the peer's next signal if it has arrived; returns whether it had.
  FLUXCCL_DEVICE bool poll() const { return semaphore.poll(); }

 private:
  template <class T>
  struct WordOf {
    static_assert(__is_trivially_copyable(T), "read and write move trivially copyable types");
    using Type = typename detail::WordOf<sizeof(T)>::Type;
  };

  // Room for a T, which need not have a constructor without arguments.
  template <class T>
  union Value {
    uint8_t none;
    T value;

    FLUXCCL_DEVICE Value() : none(0) {}
  };

  FLUXCCL_DEVICE static void* at(void* memory, uint64_t offset) {
    return static_cast<uint8_t*>(memory) + offset;
  }

#endif  // FLUXCCL_CUDA
};

// MSCCL++'s names, before and since its version 0.7.
using SmChannelDeviceHandle = SmChannel;
using MemoryChannel = SmChannel;
using MemoryChannelDeviceHandle = SmChannel;

FLUXCCL_ASSERT_OFFSET(SmChannel, semaphore, 0);
FLUXCCL_ASSERT_OFFSET(SmChannel, target, 48);
FLUXCCL_ASSERT_OFFSET(SmChannel, targetSize, 56);
FLUXCCL_ASSERT_OFFSET(SmChannel, source, 64);
FLUXCCL_ASSERT_OFFSET(SmChannel, sourceSize, 72);
FLUXCCL_ASSERT_OFFSET(SmChannel, packets, 80);
FLUXCCL_ASSERT_OFFSET(SmChannel, packetsSize, 88);
FLUXCCL_ASSERT_SIZE(SmChannel, 96);

}  // namespace fluxccl
