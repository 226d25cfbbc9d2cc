// A channel on which a kernel's own threads move the bytes, through the peer's mapped memory. Twin
// of SmChannelDeviceHandle.
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "copy.cuh"
#include "packet.cuh"
#include "semaphore.cuh"

namespace fluxccl {

// A kernel takes it by value. Offsets and sizes are bytes.
//
// put, get and the packet methods are called by numThreads threads together, each with its own
// threadId; each does its share. signal, wait and poll are called by one thread, behind a
// __syncthreads() where others copied.
struct SmChannel {
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
  template <PacketType kType>
  FLUXCCL_DEVICE void putPackets(uint64_t targetOffset, uint64_t sourceOffset, uint64_t size,
                                 uint32_t threadId, uint32_t numThreads, uint32_t flag) const {
    FLUXCCL_REQUIRE(size % sizeof(typename PacketOf<kType>::Type::Payload) == 0);
    FLUXCCL_REQUIRE(isWithin(targetOffset, 2 * size, targetSize));
    FLUXCCL_REQUIRE(isWithin(sourceOffset, size, sourceSize));
    fluxccl::putPackets<kType>(at(target, targetOffset), at(source, sourceOffset), size, threadId,
                               numThreads, flag);
  }

  // Takes the peer's packets out of the local packet buffer, waiting for each until it carries the
  // flag, and writes the payload to local memory. Returns true when all packets of this thread have
  // arrived; false if the communicator was aborted.
  template <PacketType kType>
  FLUXCCL_DEVICE bool getPackets(uint64_t packetOffset, uint64_t sourceOffset, uint64_t size,
                                 uint32_t threadId, uint32_t numThreads, uint32_t flag) const {
    FLUXCCL_REQUIRE(size % sizeof(typename PacketOf<kType>::Type::Payload) == 0);
    FLUXCCL_REQUIRE(isWithin(packetOffset, 2 * size, packetsSize));
    FLUXCCL_REQUIRE(isWithin(sourceOffset, size, sourceSize));
    return fluxccl::getPackets<kType>(at(source, sourceOffset), at(packets, packetOffset), size,
                                      threadId, numThreads, flag, semaphore.abort, semaphore.peer);
  }

  // Reads one T, of 4 or 8 bytes, of the peer's memory; index counts Ts.
  template <class T = uint64_t>
  FLUXCCL_DEVICE T read(uint64_t index) const {
    using Word = typename WordOf<sizeof(T)>::Type;
    FLUXCCL_REQUIRE(isWithin(index * sizeof(T), sizeof(T), targetSize));
    const Word word = loadRelaxedSys(static_cast<const Word*>(target) + index);
    T value;
    memcpy(&value, &word, sizeof(T));
    return value;
  }

  // Writes one T, of 4 or 8 bytes, of the peer's memory; index counts Ts.
  template <class T = uint64_t>
  FLUXCCL_DEVICE void write(uint64_t index, T value) const {
    using Word = typename WordOf<sizeof(T)>::Type;
    FLUXCCL_REQUIRE(isWithin(index * sizeof(T), sizeof(T), targetSize));
    Word word;
    memcpy(&word, &value, sizeof(T));
    storeRelaxedSys(static_cast<Word*>(target) + index, word);
  }

  // Tells the peer that everything this thread wrote before, or synchronised with, has arrived.
  FLUXCCL_DEVICE void signal() const { semaphore.signal(); }

  // Like signal, but without ordering earlier writes.
  FLUXCCL_DEVICE void relaxedSignal() const { semaphore.relaxedSignal(); }

  // Waits for the peer's next signal; returns false if the communicator was aborted.
  FLUXCCL_DEVICE bool wait() const { return semaphore.wait(); }

  // Takes the peer's next signal if it has arrived; returns whether it had.
  FLUXCCL_DEVICE bool poll() const { return semaphore.poll(); }

 private:
  template <int kBytes, int kUnused = 0>
  struct WordOf;

  template <int kUnused>
  struct WordOf<4, kUnused> {
    using Type = uint32_t;
  };

  template <int kUnused>
  struct WordOf<8, kUnused> {
    using Type = uint64_t;
  };

  FLUXCCL_DEVICE static void* at(void* memory, uint64_t offset) {
    return static_cast<uint8_t*>(memory) + offset;
  }

#endif  // FLUXCCL_CUDA
};

FLUXCCL_ASSERT_OFFSET(SmChannel, semaphore, 0);
FLUXCCL_ASSERT_OFFSET(SmChannel, target, 48);
FLUXCCL_ASSERT_OFFSET(SmChannel, targetSize, 56);
FLUXCCL_ASSERT_OFFSET(SmChannel, source, 64);
FLUXCCL_ASSERT_OFFSET(SmChannel, sourceSize, 72);
FLUXCCL_ASSERT_OFFSET(SmChannel, packets, 80);
FLUXCCL_ASSERT_OFFSET(SmChannel, packetsSize, 88);
FLUXCCL_ASSERT_SIZE(SmChannel, 96);

}  // namespace fluxccl
