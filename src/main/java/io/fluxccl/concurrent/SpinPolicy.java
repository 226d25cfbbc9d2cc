// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.InvalidUsage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Determines how long a waiting thread may poll without yielding its core. When more threads may
 * wait at the same time than there are cores, a wait yields at once, because another thread must
 * run before the wait can end. While each thread has a core, a wait first polls for about a
 * millisecond.
 *
 * <p>The millisecond is for two ranks that share a core while another core is idle. If they yielded
 * to each other, the scheduler would leave both on that core. It moves a thread that cannot run. If
 * other programs use the cores, {@link SpinBackoff} shortens the polling to some microseconds, the
 * time in which a running peer answers.
 *
 * <p>Streams and block workers count themselves while they have work, proxies and agents while they
 * run; other threads may do so with {@link #enter()} and {@link #exit()}. Other processes of the
 * host are assumed to be like this one. Thread-safe.
 */
public final class SpinPolicy {
  private static final int CORES = Runtime.getRuntime().availableProcessors();
  private static final int LONG_POLLS = 50_000;
  private static final int BRIEF_POLLS = 200;
  private static final int CROWDED_POLLS = 1;

  private static final SpinBackoff BACKOFF = new SpinBackoff();

  private static final AtomicInteger THREADS = new AtomicInteger();
  private static volatile int processesOnHost = 1;

  private static volatile boolean crowded;
  private static volatile boolean longSpins = true;

  /**
   * The number of polls of a wait before it yields. Read at every step, written only if it changes.
   */
  private static volatile int pollsBeforeYield = LONG_POLLS;

  private SpinPolicy() {}

  /**
   * Sets the number of processes of this host that poll like this one. Called by the communicator.
   *
   * @param processes 1 or more, this one included
   * @throws InvalidUsage if it is less than 1
   */
  public static void setProcessesOnHost(int processes) {
    if (processes < 1) {
      throw InvalidUsage.of("processesOnHost=%s; give 1 or more, this process included", processes);
    }
    processesOnHost = processes;
    update();
  }

  /** Counts the calling thread among those that may wait. */
  public static void enter() {
    THREADS.incrementAndGet();
    update();
  }

  /** Removes the calling thread from those that may wait. */
  public static void exit() {
    THREADS.decrementAndGet();
    update();
  }

  /** Returns whether more threads may wait than there are cores. */
  public static boolean isCrowded() {
    return crowded;
  }

  /** Returns how often a wait may poll before it yields its core. */
  public static int pollsBeforeYield() {
    return pollsBeforeYield;
  }

  /** Records that a wait for a peer polled {@link #pollsBeforeYield} times without success. */
  public static void onSpinTimeout() {
    if (!crowded) {
      longSpins = BACKOFF.onSpinTimeout(System.nanoTime());
      setPolls();
    }
  }

  /**
   * Updates the fields from the current counts. Threads may store concurrently. Each then checks
   * whether the counts have changed, so that the last stored value is current.
   */
  private static void update() {
    boolean now;
    do {
      now = computeCrowded();
      crowded = now;
      setPolls();
    } while (now != computeCrowded());
  }

  private static boolean computeCrowded() {
    return (long) Math.max(1, THREADS.get()) * processesOnHost > CORES;
  }

  private static int computePolls() {
    return crowded ? CROWDED_POLLS : longSpins ? LONG_POLLS : BRIEF_POLLS;
  }

  private static void setPolls() {
    for (int polls = computePolls(); polls != pollsBeforeYield; polls = computePolls()) {
      pollsBeforeYield = polls;
    }
  }

  /**
   * Decides whether waits of this process may spin for long, if the host has a core for every
   * waiting thread.
   *
   * <p>Long spinning pays when two ranks share a core while another core is idle: the scheduler
   * then moves the thread that cannot run. It is costly when another program uses that core: each
   * wait then lasts as long as a scheduler's time slice. So long spinning is tried for {@link
   * #TRIAL_NS}, and if waits still time out it is suspended, for twice as long each time.
   *
   * <p>Thread-safe without locks. At worst, racing threads suspend it once too often.
   */
  static final class SpinBackoff {
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
}
