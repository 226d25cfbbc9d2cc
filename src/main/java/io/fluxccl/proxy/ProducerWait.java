// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import java.util.concurrent.locks.LockSupport;

/**
 * The backoff of a producer on a host thread between two polls of a word. It first spins, then
 * yields, then sleeps. So even more waiting threads than cores do not starve the thread for which
 * they wait. It has no state; the caller keeps the count.
 */
final class ProducerWait {
  private static final int SPINS = Runtime.getRuntime().availableProcessors() > 1 ? 200 : 0;
  private static final int YIELDS = 400;
  private static final long PARK_NANOS = 20_000;

  private ProducerWait() {}

  /**
   * Pauses this thread for a short time.
   *
   * @param count the number of pauses in this wait so far, from 0
   * @return the count for the next pause
   */
  static int pause(int count) {
    if (count < SPINS) {
      Thread.onSpinWait();
    } else if (count < SPINS + YIELDS) {
      Thread.yield();
    } else {
      LockSupport.parkNanos(PARK_NANOS);
      return count;
    }
    return count + 1;
  }
}
