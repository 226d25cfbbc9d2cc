// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/**
 * A moment, on the monotonic clock, by which something must be done. Immutable; created once at the
 * entry of an operation and passed down, so that all steps share one time limit.
 */
public final class Deadline {
  /** The time limit of operations for which none is set: 30 s. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(30);

  private static final long MAX_NANOS = Long.MAX_VALUE / 4;

  /** The time limit of what may take for ever. All longer durations mean the same. */
  public static final Duration NO_LIMIT = Duration.ofNanos(MAX_NANOS);

  private final long startNanos;
  private final long timeoutNanos;

  private Deadline(long startNanos, long timeoutNanos) {
    this.startNanos = startNanos;
    this.timeoutNanos = timeoutNanos;
  }

  /**
   * Returns a deadline that lies the given time ahead.
   *
   * @param timeout zero or more
   * @return the deadline
   * @throws InvalidUsage if {@code timeout} is negative
   */
  public static Deadline after(Duration timeout) {
    if (timeout.isNegative()) {
      throw new InvalidUsage("timeout=" + timeout + " is negative; give zero or more");
    }
    long nanos = timeout.compareTo(Duration.ofNanos(MAX_NANOS)) > 0 ? MAX_NANOS : timeout.toNanos();
    return new Deadline(System.nanoTime(), nanos);
  }

  /** Returns a deadline that never passes. */
  public static Deadline never() {
    return after(NO_LIMIT);
  }

  /** Returns whether it never passes. */
  public boolean isNever() {
    return timeoutNanos == MAX_NANOS;
  }

  /** Returns the nanoseconds left; 0 once it has passed, never negative. */
  public long remainingNanos() {
    return isNever() ? MAX_NANOS : Math.max(0, timeoutNanos - (System.nanoTime() - startNanos));
  }

  /** Returns the milliseconds left, rounded up; 0 once it has passed. */
  public long remainingMillis() {
    return TimeUnit.NANOSECONDS.toMillis(remainingNanos() + 999_999);
  }

  /** Returns the time left. */
  public Duration remaining() {
    return Duration.ofNanos(remainingNanos());
  }

  /** Returns whether it has passed. */
  public boolean expired() {
    return remainingNanos() == 0;
  }

  /** Returns the whole time limit. */
  public Duration timeout() {
    return Duration.ofNanos(timeoutNanos);
  }

  @Override
  public String toString() {
    if (isNever()) {
      return "Deadline(never)";
    }
    return String.format(
        "Deadline(%s ms, %s ms left)",
        TimeUnit.NANOSECONDS.toMillis(timeoutNanos), remainingMillis());
  }
}
