// SPDX-License-Identifier: Apache-2.0
// Channels on which a kernel asks the host's proxy to move bytes. Twin of ProxyChannelDeviceHandle.
#pragma once

#include "config.cuh"
#include "fifo.cuh"
#include "poll.cuh"
#include "semaphore.cuh"
#include "trigger.cuh"

namespace fluxccl {

// A kernel takes it by value. Each call is made by one thread; several threads may call at once,
// except wait and poll. Offsets and sizes are bytes, below 4 GiB; the host checks them against the
// memories. A put sends the thread's earlier writes and those with which it has synchronised.
//
// Methods that return a bool return false if the communicator was aborted, for puts also if a size or
// an offset is 4 GiB or more, or a memory's id is not below 512 (the channel fails then), and for
// flushes also if the channel has failed.
struct ProxyChannel {
  using DeviceHandle = ProxyChannel;

  FifoDeviceHandle fifo;
  Host2DeviceSemaphore semaphore;
  // In pinned memory of the host: every flush pushed below this position is done; negative: failed.
  const uint64_t* flushWord;
  uint32_t semaphoreId;
  // The peer's memory and the local one, as registered with the proxy service.
  uint32_t targetId;
  uint32_t sourceId;
  uint32_t padding;

#if defined(FLUXCCL_CUDA)

  // The rank at the other end.
  FLUXCCL_DEVICE int32_t peer() const { return static_cast<int32_t>(semaphore.peer); }

  // Asks the proxy to copy from local memory to the peer's. The source must stay until a flush.
  FLUXCCL_DEVICE bool put(uint64_t targetOffset, uint64_t sourceOffset, uint64_t size) const {
    return put(targetId, targetOffset, sourceId, sourceOffset, size);
  }

  // put with the same offset in both memories.
  FLUXCCL_DEVICE bool put(uint64_t offset, uint64_t size) const {
    return put(offset, offset, size);
  }

  // put between other memories of the same proxy service, by their ids.
  FLUXCCL_DEVICE bool put(uint32_t target, uint64_t targetOffset, uint32_t source,
                          uint64_t sourceOffset, uint64_t size) const {
    return push(ChannelTrigger::kData, target, targetOffset, source, sourceOffset, size) >= 0;
  }

  // Asks the proxy to raise the peer's semaphore after all earlier requests.
  FLUXCCL_DEVICE bool signal() const {
    return push(ChannelTrigger::kSignal, targetId, 0, sourceId, 0, 0) >= 0;
  }

  // put and signal in one trigger.
  FLUXCCL_DEVICE bool putWithSignal(uint64_t targetOffset, uint64_t sourceOffset,
                                    uint64_t size) const {
    return putWithSignal(targetId, targetOffset, sourceId, sourceOffset, size);
  }

  FLUXCCL_DEVICE bool putWithSignal(uint64_t offset, uint64_t size) const {
    return putWithSignal(offset, offset, size);
  }

  // putWithSignal between other memories of the same proxy service, by their ids.
  FLUXCCL_DEVICE bool putWithSignal(uint32_t target, uint64_t targetOffset, uint32_t source,
                                    uint64_t sourceOffset, uint64_t size) const {
    return push(ChannelTrigger::kData | ChannelTrigger::kSignal, target, targetOffset, source,
                sourceOffset, size) >= 0;
  }

  // Waits until all earlier requests on this channel are complete in the peer's memory.
  FLUXCCL_DEVICE bool flush() const { return waitFlush(requestFlush()); }

  // put, signal and flush in one trigger.
  FLUXCCL_DEVICE bool putWithSignalAndFlush(uint64_t targetOffset, uint64_t sourceOffset,
                                            uint64_t size) const {
    return waitFlush(putWithSignalAndRequestFlush(targetOffset, sourceOffset, size));
  }

  FLUXCCL_DEVICE bool putWithSignalAndFlush(uint64_t offset, uint64_t size) const {
    return putWithSignalAndFlush(offset, offset, size);
  }

  // putWithSignalAndFlush between other memories of the same proxy service, by their ids.
  FLUXCCL_DEVICE bool putWithSignalAndFlush(uint32_t target, uint64_t targetOffset,
                                            uint32_t source, uint64_t sourceOffset,
                                            uint64_t size) const {
    return waitFlush(push(kAll, target, targetOffset, source, sourceOffset, size));
  }

  // Like putWithSignalAndFlush, but does not wait. Returns the position to wait for with waitFlush;
  // negative where put returns false.
  FLUXCCL_DEVICE int64_t putWithSignalAndRequestFlush(uint64_t targetOffset, uint64_t sourceOffset,
                                                      uint64_t size) const {
    return push(kAll, targetId, targetOffset, sourceId, sourceOffset, size);
  }

  // Like flush, but does not wait; see putWithSignalAndRequestFlush.
  FLUXCCL_DEVICE int64_t requestFlush() const {
    return push(ChannelTrigger::kFlush, targetId, 0, sourceId, 0, 0);
  }

  // Waits for a requested flush.
  FLUXCCL_DEVICE bool waitFlush(int64_t position) const {
    if (position < 0) {
      return false;
    }
    LoneSpinWait wait(semaphore.abort, semaphore.peer);
    while (true) {
      // Pairs with the releases in FlushTracker of the host.
      const int64_t done = static_cast<int64_t>(loadAcquireSys(flushWord));
      if (done > position) {
        return true;
      }
      if (done < 0 || !wait.goOn()) {
        return false;
      }
    }
  }

  // Waits for the peer's next signal.
  FLUXCCL_DEVICE bool wait() const { return semaphore.wait(); }

  // Takes the peer's next signal if it has arrived; returns whether it had.
  FLUXCCL_DEVICE bool poll() const { return semaphore.poll(); }

 private:
  static constexpr uint32_t kAll =
      ChannelTrigger::kData | ChannelTrigger::kSignal | ChannelTrigger::kFlush;

  FLUXCCL_DEVICE int64_t push(uint32_t type, uint32_t target, uint64_t targetOffset,
                              uint32_t source, uint64_t sourceOffset, uint64_t size) const {
    const ProxyTrigger trigger = ChannelTrigger::pack(size, sourceOffset, targetOffset, source,
                                                      target, type, semaphoreId);
    const int64_t position = fifo.push(trigger);
    return ChannelTrigger::type(trigger) != 0 ? position : FifoDeviceHandle::kAborted;
  }

#endif  // FLUXCCL_CUDA
};

FLUXCCL_ASSERT_OFFSET(ProxyChannel, fifo, 0);
FLUXCCL_ASSERT_OFFSET(ProxyChannel, semaphore, 48);
FLUXCCL_ASSERT_OFFSET(ProxyChannel, flushWord, 96);
FLUXCCL_ASSERT_OFFSET(ProxyChannel, semaphoreId, 104);
FLUXCCL_ASSERT_OFFSET(ProxyChannel, targetId, 108);
FLUXCCL_ASSERT_OFFSET(ProxyChannel, sourceId, 112);
FLUXCCL_ASSERT_SIZE(ProxyChannel, 120);

// MSCCL++'s names, before and since its version 0.7.
using SimpleProxyChannel = ProxyChannel;
using ProxyChannelDeviceHandle = ProxyChannel;
using SimpleProxyChannelDeviceHandle = ProxyChannel;
using PortChannel = ProxyChannel;
using PortChannelDeviceHandle = ProxyChannel;

}  // namespace fluxccl
