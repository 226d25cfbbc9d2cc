// SPDX-License-Identifier: Apache-2.0
// Counters by which one rank signals to a peer that the data it sent has arrived. Twin of
// SemaphoreDeviceHandle; the kinds are named after where signal and wait run.
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "device_handle.cuh"
#include "poll.cuh"

namespace fluxccl {

// The common part of all kinds: waiting on the device. One thread at a time calls wait and poll.
struct SemaphoreDeviceHandle {
  // Raised by the peer only.
  const uint64_t* inbound;
  // Raised by this side's waits.
  uint64_t* expected;
  // Raised by this side's signals; null where the host signals.
  uint64_t* outbound;
  // The peer's inbound value as mapped here; null where the host signals.
  uint64_t* remoteInbound;
  AbortFlag* abort;
  // Rank at the other end.
  int64_t peer;

#if defined(FLUXCCL_CUDA)

  // Waits for the peer's next signal and takes it. Returns true when it has arrived, with
  // everything that the peer wrote before it. Returns false, and takes nothing, if the communicator
  // was aborted.
  FLUXCCL_DEVICE bool wait() const {
    // Not used before the first load of inbound, so that both loads are in flight at once.
    const uint64_t taken = loadRelaxedGpu(expected);
    LoneSpinWait wait(abort, peer);
    // Pairs with the release in the peer's signal, or in its transport. Counters may wrap around.
    while (static_cast<int64_t>(loadAcquireSys(inbound) - taken) <= 0) {
      if (!wait.goOn()) {
        return false;
      }
    }
    storeRelaxedGpu(expected, taken + 1);
    return true;
  }

  // Takes the peer's next signal if it has arrived; otherwise returns false and takes nothing.
  FLUXCCL_DEVICE bool poll() const {
    const uint64_t taken = loadRelaxedGpu(expected);
    // Pairs with the release in the peer's signal, or in its transport.
    if (static_cast<int64_t>(loadAcquireSys(inbound) - taken) <= 0) {
      return false;
    }
    storeRelaxedGpu(expected, taken + 1);
    return true;
  }

#endif  // FLUXCCL_CUDA
};

// From the peer's host to this kernel. A kernel takes it by value.
struct Host2DeviceSemaphore : SemaphoreDeviceHandle {
  using DeviceHandle = Host2DeviceSemaphore;
};

// From kernel to kernel through mapped memory. A kernel takes it by value. One thread at a time
// signals.
struct SmDevice2DeviceSemaphore : SemaphoreDeviceHandle {
  using DeviceHandle = SmDevice2DeviceSemaphore;

#if defined(FLUXCCL_CUDA)

  // Signals to the peer that this thread's earlier writes, and those with which it has
  // synchronised, have arrived.
  FLUXCCL_DEVICE void signal() const {
    const uint64_t sent = loadRelaxedGpu(outbound);
    // Together with the store, a release, which pairs with the acquire in the peer's wait and poll.
    // A separate fence does not wait for the load above.
    fenceAcqRelSys();
    store(sent + 1);
  }

  // Like signal, but without ordering earlier writes: for events, not for data.
  FLUXCCL_DEVICE void relaxedSignal() const {
    store(loadRelaxedGpu(outbound) + 1);
  }

 private:
  // Stores the count that is kept here, instead of adding to the peer's: not every link between
  // GPUs carries atomics.
  FLUXCCL_DEVICE void store(uint64_t next) const {
    storeRelaxedSys(remoteInbound, next);
    storeRelaxedGpu(outbound, next);
  }

#endif  // FLUXCCL_CUDA
};

// MSCCL++'s name since its version 0.7.
using MemoryDevice2DeviceSemaphore = SmDevice2DeviceSemaphore;

FLUXCCL_ASSERT_OFFSET(SemaphoreDeviceHandle, inbound, 0);
FLUXCCL_ASSERT_OFFSET(SemaphoreDeviceHandle, expected, 8);
FLUXCCL_ASSERT_OFFSET(SemaphoreDeviceHandle, outbound, 16);
FLUXCCL_ASSERT_OFFSET(SemaphoreDeviceHandle, remoteInbound, 24);
FLUXCCL_ASSERT_OFFSET(SemaphoreDeviceHandle, abort, 32);
FLUXCCL_ASSERT_OFFSET(SemaphoreDeviceHandle, peer, 40);
FLUXCCL_ASSERT_SIZE(SemaphoreDeviceHandle, 48);
FLUXCCL_ASSERT_SIZE(Host2DeviceSemaphore, 48);
FLUXCCL_ASSERT_SIZE(SmDevice2DeviceSemaphore, 48);

}  // namespace fluxccl
