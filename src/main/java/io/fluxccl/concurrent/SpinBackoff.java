// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import java.util.concurrent.TimeUnit;

/**
 * Decides whether waits of this process may spin for long, if the host has a core for every waiting
 * thread.
 *
 * <p>Long spinning pays when two ranks share a core while another core is idle: the scheduler then
 * moves the thread that cannot run. It is costly when another program uses that core: each wait
 * then lasts as long as a scheduler's time slice. So long spinning is tried for {@link #TRIAL_NS},
 * and if waits still time out it is suspended, for twice as long each time.
 *
 * <p>Thread-safe without locks. At worst, racing threads suspend it once too often.
 */
final class SpinBackoff {
  /**
   * Length of a trial of long spinning after the first spin timeout: two ticks of the scheduler.
   */
  static final long TRIAL_NS = TimeUnit.MILLISECONDS.toNanos(10);

  static final long SHORTEST_REST_NS = TimeUnit.MILLISECONDS.toNanos(50);
  static final long LONGEST_REST_NS = TimeUnit.MILLISECONDS.toNanos(800);

  /** Spin timeouts with a longer interval between them are unrelated. */
  static final long MEMORY_NS = TimeUnit.MILLISECONDS.toNanos(100);

  private volatile boolean resting;
  private volatile boolean tried;
  private volatile long trialBegan;
  private volatile long restEnds;
  private volatile long restNs = SHORTEST_REST_NS;

  /**
   * Records that a wait has spun for the permitted time without success.
   *
   * @param now {@link System#nanoTime}
   * @return whether later waits may spin for long
   */
  boolean onSpinTimeout(long now) {
    if (resting) {
      if (now - restEnds < 0) {
        return false;
      }
      resting = false;
      tried = false;
    }
    if (!tried || now - trialBegan > MEMORY_NS) {
      if (now - restEnds > LONGEST_REST_NS) {
        restNs = SHORTEST_REST_NS;
      }
      trialBegan = now;
      tried = true;
      return true;
    }
    if (now - trialBegan < TRIAL_NS) {
      return true;
    }
    long rest = restNs;
    restEnds = now + rest;
    restNs = Math.min(2 * rest, LONGEST_REST_NS);
    resting = true;
    return false;
  }
}
