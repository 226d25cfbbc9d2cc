// SPDX-License-Identifier: Apache-2.0
// Waits that end soon after the communicator was aborted. Twin of AbortFlag and SpinWait.
#pragma once

#include "atomics.cuh"
#include "config.cuh"
#include "ptx.cuh"

namespace fluxccl {

// The word that every waiting kernel of a communicator watches, in pinned memory of the host. A
// kernel takes it by address.
struct AbortFlag {
  // 0: running, otherwise aborted.
  uint64_t aborted;
  uint64_t padding0[7];
  // Target of the latest long wait: 0 = none, rank + 1 = that peer, -1 = this rank's proxy.
  uint64_t waitingFor;
  uint64_t padding1[7];

#if defined(FLUXCCL_CUDA)
  FLUXCCL_DEVICE bool isSet() const {
    // Pairs with the release in AbortFlag.set() of the host.
    return loadAcquireSys(&aborted) != 0;
  }
#endif
};

FLUXCCL_ASSERT_OFFSET(AbortFlag, aborted, 0);
FLUXCCL_ASSERT_OFFSET(AbortFlag, waitingFor, 64);
FLUXCCL_ASSERT_SIZE(AbortFlag, 128);

#if defined(FLUXCCL_CUDA)

// Number of polls before a wait first checks the abort flag. A macro, so that environments whose
// polls take much longer than a GPU's can set it.
#if !defined(FLUXCCL_POLLS_PER_LOOK)
#define FLUXCCL_POLLS_PER_LOOK 8192
#endif

// One wait of one thread, for any condition:
//
//   fluxccl::SpinWait wait(abort, peer);
//   while (!isThere()) {
//     if (!wait.goOn()) {
//       return false;
//     }
//   }
//
// The flag lies in the host's memory. If all warps of a large grid check it, this takes up to two
// milliseconds, in which they do not see the data for which they wait. The check must take much
// less time than the wait before it: when it did not, ranks kept each other waiting from launch to
// launch (docs/reference/proxy-and-channels.md, "Waiting"). So there are kFirstInterval polls
// before the first check, and later four times as many between two checks. With the eight thousand
// of SpinWait, a wait sees the flag within 5 ms to 30 ms of its being set.
template <uint32_t kFirstInterval>
class SpinWaitOf {
 public:
  // Values in place of a rank: no particular rank, and the proxy of this rank.
  static constexpr int64_t kNobody = -1;
  static constexpr int64_t kOwnProxy = -2;

  // Watches abort, which may be null; peer is the rank for which the thread waits, or one of them.
  FLUXCCL_DEVICE SpinWaitOf(AbortFlag* abort, int64_t peer)
      : abort_(abort), peer_(peer), polls_(0), interval_(kFirstInterval) {}

  // Call it after each unsuccessful poll. Returns false once the flag is set.
  FLUXCCL_DEVICE bool goOn() {
    betweenPolls();
    if (++polls_ < interval_) {
      return true;
    }
    polls_ = 0;
    return look();
  }

 private:
  static constexpr uint32_t kLastInterval = 4 * kFirstInterval;

  FLUXCCL_DEVICE bool look() {
    if (abort_ == nullptr) {
      return true;
    }
    if (interval_ == 2 * kFirstInterval && peer_ != kNobody) {
      // Once in a wait, after three first intervals. Pairs with the acquire in
      // AbortFlag.waitingFor().
      storeRelaxedSys(&abort_->waitingFor, static_cast<uint64_t>(peer_ + 1));
    }
    if (interval_ < kLastInterval) {
      interval_ *= 2;
    }
    return !abort_->isSet();
  }

  AbortFlag* abort_;
  int64_t peer_;
  uint32_t polls_;
  uint32_t interval_;
};

using SpinWait = SpinWaitOf<FLUXCCL_POLLS_PER_LOOK>;

// For waits of one thread on behalf of its block: few threads check the flag at once. Many of these
// waits poll the host's memory, where a poll takes several times as long.
using LoneSpinWait = SpinWaitOf<FLUXCCL_POLLS_PER_LOOK / 8>;

// Waits until isThere() is true; false if the abort flag was set first.
template <class Condition>
FLUXCCL_DEVICE bool waitUntil(AbortFlag* abort, int64_t peer, Condition isThere) {
  SpinWait wait(abort, peer);
  while (!isThere()) {
    if (!wait.goOn()) {
      return false;
    }
  }
  return true;
}

#endif  // FLUXCCL_CUDA

}  // namespace fluxccl
