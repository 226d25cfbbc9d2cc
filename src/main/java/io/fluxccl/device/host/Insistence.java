package io.fluxccl.device.host;

import java.util.concurrent.TimeUnit;

/**
 * Whether waits of this process keep polling for long, although there seems to be a core for every
 * thread that waits. That pays when two ranks share a core while another is idle: who is kept from
 * running gets moved. It is a disaster when there is no idle core, because somebody else uses it:
 * then each wait lasts as long as the scheduler lets one poll. So insisting is tried for some
 * milliseconds, and if waits still find nothing, put off for ever longer.
 *
 * <p>Any thread, without locks: threads that race put it off once too often at worst.
 */
final class Insistence {
  /** For how long is insisted, from the first wait in vain on: two ticks of the scheduler. */
  static final long TRIAL_NS = TimeUnit.MILLISECONDS.toNanos(10);

  static final long SHORTEST_REST_NS = TimeUnit.MILLISECONDS.toNanos(50);
  static final long LONGEST_REST_NS = TimeUnit.MILLISECONDS.toNanos(800);

  /** Waits in vain that lie further apart have nothing to do with each other. */
  static final long MEMORY_NS = TimeUnit.MILLISECONDS.toNanos(100);

  private volatile boolean resting;
  private volatile boolean tried;
  private volatile long trialBegan;
  private volatile long restEnds;
  private volatile long restNs = SHORTEST_REST_NS;

  /**
   * Hears of a wait that polled for as long as it may, and found nothing.
   *
   * @param now {@link System#nanoTime}
   * @return whether the waits from now on are to insist
   */
  boolean inVain(long now) {
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
