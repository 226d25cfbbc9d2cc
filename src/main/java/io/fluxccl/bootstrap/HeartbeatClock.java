// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Distinguishes silent peers from a suspension of this process. Only on the event loop. */
final class HeartbeatClock {
  private static final long MIN_SILENCE_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final long intervalNanos;
  private long lastTickNanos = System.nanoTime();

  HeartbeatClock(Duration interval) {
    intervalNanos = interval.toNanos();
  }

  long intervalNanos() {
    return intervalNanos;
  }

  /** Returns whether this process was stopped since the last call; called once an interval. */
  boolean stalled() {
    long now = System.nanoTime();
    boolean stalled = now - lastTickNanos > 2 * intervalNanos + MIN_SILENCE_NANOS / 4;
    lastTickNanos = now;
    return stalled;
  }

  /** Returns the time since which bytes of a rank must have arrived; otherwise it is silent. */
  long silenceLimit() {
    return System.nanoTime() - Math.max(MIN_SILENCE_NANOS, 5 * intervalNanos);
  }
}
