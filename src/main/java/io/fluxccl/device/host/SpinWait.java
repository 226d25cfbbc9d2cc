// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.AbortFlagDescriptor;
import java.util.concurrent.locks.LockSupport;

/**
 * Waits of host kernels and of other code that polls memory. A wait polls, then yields, then
 * sleeps, as {@link SpinPolicy} permits, and ends soon after an abort flag is set. Allocates
 * nothing, has no state.
 *
 * <p>To wait for another condition:
 *
 * <pre>{@code
 * int step = 0;
 * while (!isThere()) {
 *   step = SpinWait.step(step, abortAddress, peer);
 *   if (step < 0) {
 *     return false;
 *   }
 * }
 * }</pre>
 */
@Experimental
public final class SpinWait {
  /** The result of {@link #step} if the abort flag is set. */
  public static final int ABORTED = -1;

  /** Polls between two checks of the abort flag, less one; a power of two, less one. */
  private static final int ABORT_CHECK_MASK = 1023;

  private static final int YIELDING = 1 << 20;
  private static final int DOZING = YIELDING + 10_000;
  private static final long DOZE_NANOS = 20_000;

  private SpinWait() {}

  /**
   * Waits until the 64-bit word at an address has reached a value. Compares by difference, so
   * counters may wrap around.
   *
   * @param address of the word, a multiple of 8
   * @param expected the least value to wait for
   * @param abortAddress {@link io.fluxccl.device.AbortFlag#deviceAddress()}, or 0 for none
   * @param peer the rank that will write it, noted with the abort flag when the wait becomes long;
   *     negative for none
   * @return true if the value was reached, and the writes released with it are visible; false if
   *     the abort flag was set first
   */
  public static boolean awaitAtLeast(long address, long expected, long abortAddress, int peer) {
    int step = 0;
    // Pairs with the release store by which the peer signals.
    while (HostMemory.getLongAcquire(address) - expected < 0) {
      step = step(step, abortAddress, peer);
      if (step < 0) {
        return false;
      }
    }
    return true;
  }

  /**
   * Takes one step of a wait, between two checks of the condition.
   *
   * @param step 0 at the first call of a wait, then the result of the previous call
   * @param abortAddress the abort flag to watch, or 0 for none
   * @param peer the rank that is waited for; negative for none
   * @return the step to pass to the next call, or {@link #ABORTED}
   */
  public static int step(int step, long abortAddress, int peer) {
    if (step < SpinPolicy.pollsBeforeYield()) {
      Thread.onSpinWait();
      return (step & ABORT_CHECK_MASK) == ABORT_CHECK_MASK && isAborted(abortAddress)
          ? ABORTED
          : step + 1;
    }
    return slowStep(step, abortAddress, peer);
  }

  private static int slowStep(int step, long abortAddress, int peer) {
    int next = step;
    if (step < YIELDING) {
      next = YIELDING;
      SpinPolicy.onSpinTimeout();
      recordWaitTarget(abortAddress, peer);
    }
    if (isAborted(abortAddress)) {
      return ABORTED;
    }
    if (next < DOZING) {
      Thread.yield();
      return next + 1;
    }
    if (Thread.currentThread().isInterrupted()) {
      // Parking would return at once. An interrupt does not end a wait; the abort flag does.
      Thread.yield();
    } else {
      LockSupport.parkNanos(DOZE_NANOS);
    }
    return next;
  }

  /** Returns whether the abort flag at an address is set; false for address 0. */
  public static boolean isAborted(long abortAddress) {
    // Pairs with the release in AbortFlag.set().
    return abortAddress != 0
        && HostMemory.getLongAcquire(abortAddress + AbortFlagDescriptor.ABORTED_OFFSET) != 0;
  }

  private static void recordWaitTarget(long abortAddress, int peer) {
    if (abortAddress != 0 && peer >= 0) {
      // Pairs with the acquire in AbortFlag.waitingFor().
      HostMemory.putLongRelease(abortAddress + AbortFlagDescriptor.WAITING_FOR_OFFSET, peer + 1L);
    }
  }
}
