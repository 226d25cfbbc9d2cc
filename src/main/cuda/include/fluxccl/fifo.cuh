// SPDX-License-Identifier: Apache-2.0
// The producers' end of the ring of triggers. Twin of FifoDeviceHandle.
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "device_handle.cuh"
#include "poll.cuh"
#include "ptx.cuh"
#include "trigger.cuh"

namespace fluxccl {

// A kernel takes it by value. Any number of threads push at once.
//
// With FLUXCCL_FIFO_SPLIT_STORE a trigger is stored as two words of 8 bytes, for hosts that may see
// half of a store of 16 bytes.
struct FifoDeviceHandle {
  using DeviceHandle = FifoDeviceHandle;

  // The result of an aborted push.
  static constexpr int64_t kAborted = -1;

  // In pinned memory of the host.
  ProxyTrigger* triggers;
  // In this GPU's memory: the next position to be pushed.
  uint64_t* head;
  // In pinned memory: the number of handled triggers.
  const uint64_t* tail;
  // In this GPU's memory: a tail that some thread has read, never beyond the real one.
  uint64_t* tailCache;
  AbortFlag* abort;
  // Triggers in the ring, a power of two.
  uint32_t size;
  uint32_t padding;

#if defined(FLUXCCL_CUDA)

  // Pushes a trigger; waits while the ring is full. The trigger's handler sees this thread's earlier writes
  // and those with which it has synchronised. Bit 63 of second is ignored.
  //
  // Returns its position, for sync; kAborted if the abort flag was set while the ring was full. An aborted
  // push leaves a gap; no trigger after the gap is handled.
  FLUXCCL_DEVICE int64_t push(uint64_t first, uint64_t second) const {
    return push<true>(first, second);
  }

  FLUXCCL_DEVICE int64_t push(const ProxyTrigger& trigger) const {
    return push(trigger.first, trigger.second);
  }

  // Like push, but without ordering earlier writes: for events, not for data.
  FLUXCCL_DEVICE int64_t relaxedPush(uint64_t first, uint64_t second) const {
    return push<false>(first, second);
  }

  // Waits until the trigger at a position has been handled; its handler's writes are then visible. False if
  // the abort flag was set first, or position is kAborted.
  FLUXCCL_DEVICE bool sync(int64_t position) const {
    if (position < 0) {
      return false;
    }
    const uint64_t target = static_cast<uint64_t>(position);
    LoneSpinWait wait(abort, SpinWait::kOwnProxy);
    // Pairs with the release in the host's Fifo.publishTail.
    while (loadAcquireSys(tail) <= target) {
      if (!wait.goOn()) {
        return false;
      }
    }
    return true;
  }

  // Waits until every trigger that has been pushed before, by whichever thread, has been handled.
  // False if the abort flag was set first.
  FLUXCCL_DEVICE bool sync() const {
    const int64_t pushed = static_cast<int64_t>(loadRelaxedGpu(head));
    return pushed == 0 || sync(pushed - 1);
  }

 private:
  template <bool kPublish>
  FLUXCCL_DEVICE int64_t push(uint64_t first, uint64_t second) const {
    const uint64_t handled = loadRelaxedGpu(tailCache);
    const uint64_t position = claim();
    if (position - handled >= size && !awaitSlot(position)) {
      return kAborted;
    }
    store<kPublish>(position, first, second);
    if ((position & (size / 2 - 1)) == 0) {
      // So that in the usual case, where the host keeps up, no thread has to wait for the bus.
      maxRelaxedGpu(tailCache, loadRelaxedSys(tail));
    }
    return static_cast<int64_t>(position);
  }

  // Claims the next position, with one atomic for all threads of a warp that call this together.
  FLUXCCL_DEVICE uint64_t claim() const {
    const uint32_t active = __activemask();
    if ((active & (active - 1)) == 0) {
      return fetchAddRelaxedGpu(head, 1);
    }
    // They may be pushing to different rings.
    const uint32_t together =
        __match_any_sync(active, reinterpret_cast<unsigned long long>(head));
    const uint32_t lane = laneId();
    const uint32_t leader = static_cast<uint32_t>(__ffs(static_cast<int>(together))) - 1;
    unsigned long long base = 0;
    if (lane == leader) {
      base = fetchAddRelaxedGpu(head, static_cast<uint64_t>(__popc(together)));
    }
    base = __shfl_sync(together, base, static_cast<int>(leader));
    return base + static_cast<uint64_t>(__popc(together & ((1u << lane) - 1)));
  }

  // Waits until the slot of a position is free; false if the abort flag was set first. Relaxed: what follows
  // is the store alone, and that depends on what is loaded here. Only sync promises what a handler did.
  FLUXCCL_DEVICE bool awaitSlot(uint64_t position) const {
    SpinWait wait(abort, SpinWait::kOwnProxy);
    while (true) {
      const uint64_t cached = loadRelaxedGpu(tailCache);
      if (position - cached < size) {
        return true;
      }
      // This load goes over the bus. So only threads whose slot becomes free in the next lap make
      // it: loads of thousands of waiting threads would delay the stores of threads that do not
      // wait. The thread that waits first is among them, because the thread that pushed one lap
      // before it had seen, or cached, that its own slot was free.
      if (position - cached < 2 * static_cast<uint64_t>(size)) {
        const uint64_t handled = loadRelaxedSys(tail);
        if (position - handled < size) {
          maxRelaxedGpu(tailCache, handled);
          return true;
        }
      }
      if (!wait.goOn()) {
        return false;
      }
    }
  }

  // The slot's last trigger has been read: the store depends on the tail that was loaded, and no store
  // is speculative.
  template <bool kPublish>
  FLUXCCL_DEVICE void store(uint64_t position, uint64_t first, uint64_t second) const {
    ProxyTrigger* slot = triggers + (position & (size - 1));
    const uint64_t committed = ProxyTrigger::commit(second, position, size);
    // The releases pair with the acquire of the second word in the host's Fifo.poll.
#if defined(FLUXCCL_FIFO_SPLIT_STORE)
    // Two accesses, at the price of waiting for the first before the second.
    storeRelaxedSys(&slot->first, first);
    storeReleaseSys(&slot->second, committed);
#else
    // One access of 16 bytes, so the host never sees a second word without its first.
    if (kPublish) {
      storeReleaseSys(slot, first, committed);
    } else {
      storeRelaxedSys(slot, first, committed);
    }
#endif
  }

#endif  // FLUXCCL_CUDA
};

FLUXCCL_ASSERT_OFFSET(FifoDeviceHandle, triggers, 0);
FLUXCCL_ASSERT_OFFSET(FifoDeviceHandle, head, 8);
FLUXCCL_ASSERT_OFFSET(FifoDeviceHandle, tail, 16);
FLUXCCL_ASSERT_OFFSET(FifoDeviceHandle, tailCache, 24);
FLUXCCL_ASSERT_OFFSET(FifoDeviceHandle, abort, 32);
FLUXCCL_ASSERT_OFFSET(FifoDeviceHandle, size, 40);
FLUXCCL_ASSERT_SIZE(FifoDeviceHandle, 48);

}  // namespace fluxccl
