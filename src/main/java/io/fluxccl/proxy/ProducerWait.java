package io.fluxccl.proxy;

import java.util.concurrent.locks.LockSupport;

/**
 * How a producer on a host thread waits between two polls of a word: it spins first, then gives way
 * to other threads, then sleeps, so that more waiting threads than cores do not keep the one they
 * wait for from running. Static and without state; the caller keeps the count.
 */
final class ProducerWait {
  private static final int SPINS = Runtime.getRuntime().availableProcessors() > 1 ? 200 : 0;
  private static final int YIELDS = 400;
  private static final long PARK_NANOS = 20_000;

  private ProducerWait() {}

  /**
   * Passes a little time.
   *
   * @param count how often the caller has done so in this wait, from 0
   * @return the count for the next time
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
