// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.StreamClock;
import io.fluxccl.trace.Outcome;

/**
 * The times at which the calls of a lane ran, by the device's clock, with two marks for a call. If
 * more than {@value #MOST} are in flight, the newest are not timed.
 */
final class CallTimes implements AutoCloseable {
  static final int MOST = 512;

  private final StreamClock clock;

  // All guarded by this.
  private final int[] free = new int[MOST];
  private int nFree = MOST;
  private final long[] times = new long[2];

  /**
   * Takes over a clock.
   *
   * @param clock with two points for each of the {@value #MOST}
   */
  CallTimes(StreamClock clock) {
    this.clock = clock;
    for (int i = 0; i < MOST; i++) {
      free[i] = i + 1;
    }
  }

  /** Marks the begin of a call, before it is enqueued; under the lane's lock. */
  void begin(Run run) {
    synchronized (this) {
      run.timed = nFree == 0 ? 0 : free[--nFree];
    }
    if (run.timed != 0) {
      clock.mark(2 * run.timed - 2);
    }
  }

  /** Marks the end of a call that was just enqueued; under the lane's lock. */
  void enqueued(Run run) {
    if (run.timed != 0) {
      clock.mark(2 * run.timed - 1);
    }
  }

  /** Gives a call that ends its times. Any thread. */
  synchronized void ended(Run run, Outcome outcome) {
    if (run.timed == 0) {
      return;
    }
    boolean ran = outcome == Outcome.DONE || outcome == Outcome.DETACHED;
    int end = 2 * run.timed - 1;
    if (ran && clock.read(end - 1, end, System.nanoTime(), times)) {
      run.begunNs = times[0];
      run.endedNs = times[1];
    }
    free[nFree++] = run.timed;
  }

  @Override
  public void close() {
    clock.close();
  }
}
