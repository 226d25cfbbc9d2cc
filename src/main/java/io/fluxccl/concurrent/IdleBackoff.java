// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.IdleStrategy;

/**
 * The one idle strategy of the library's polling threads. The longer there was no work, the less
 * often it polls: it spins, then yields, then sleeps for a 32nd of the time since the last work,
 * within limits.
 *
 * <p>A sleep is a fixed share of the idle time, so a polling thread responds at most 3% later than
 * without sleeps. If each idle round doubled the sleep instead, two threads that wait for each
 * other would slow down more and more. If more threads may wait than there are cores ({@link
 * SpinPolicy}), it yields instead of spinning.
 *
 * <p>Confined to one thread. Allocates nothing.
 */
public final class IdleBackoff implements IdleStrategy {
  private static final int NAP_SHARE = 32;

  private final long spinNs;
  private final long yieldNs;
  private final long shortestNapNs;
  private final long longestNapNs;

  private boolean idling;
  private long idleSinceNs;

  /**
   * Creates one.
   *
   * @param spinMicros time of spinning after the last work
   * @param yieldMicros time after the last work until which it yields, before it sleeps
   * @param shortestNapMicros the shortest sleep
   * @param longestNapMicros the longest sleep
   */
  public IdleBackoff(
      long spinMicros, long yieldMicros, long shortestNapMicros, long longestNapMicros) {
    this.spinNs = TimeUnit.MICROSECONDS.toNanos(spinMicros);
    this.yieldNs = TimeUnit.MICROSECONDS.toNanos(yieldMicros);
    this.shortestNapNs = TimeUnit.MICROSECONDS.toNanos(shortestNapMicros);
    this.longestNapNs = TimeUnit.MICROSECONDS.toNanos(longestNapMicros);
  }

  @Override
  public void idle(int workCount) {
    if (workCount > 0) {
      reset();
    } else {
      idle();
    }
  }

  @Override
  public void idle() {
    long nap = nextNapNanos(System.nanoTime());
    if (nap > 0) {
      LockSupport.parkNanos(this, nap);
    }
  }

  /**
   * Spins or yields once, or returns the time for which the caller should sleep. For callers whose
   * sleeps other threads end.
   *
   * @param now {@link System#nanoTime}
   * @return nanoseconds, or 0 if it has spun or yielded
   */
  public long nextNapNanos(long now) {
    if (!idling) {
      idling = true;
      idleSinceNs = now;
    }
    long quiet = now - idleSinceNs;
    if (quiet < spinNs && !SpinPolicy.isCrowded()) {
      Thread.onSpinWait();
      return 0;
    }
    if (quiet < Math.max(spinNs, yieldNs)) {
      Thread.yield();
      return 0;
    }
    return Math.min(longestNapNs, Math.max(shortestNapNs, quiet / NAP_SHARE));
  }

  @Override
  public void reset() {
    idling = false;
  }

  @Override
  public String alias() {
    return "backoff";
  }
}
