// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import reactor.core.Disposable;
import reactor.core.Disposables;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * A point in time, on the monotonic clock, by which an operation must be done. Immutable. Each
 * operation creates one and passes it on, so that all its steps share one time limit.
 *
 * <p>A deadline created while a test has installed Reactor's virtual time passes in virtual or in
 * real time, whichever is first.
 */
public final class Deadline {
  /** The default time limit of operations: 30 s. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(30);

  private static final long MAX_NANOS = Long.MAX_VALUE / 4;

  /** No time limit. All longer durations have the same meaning. */
  public static final Duration NO_LIMIT = Duration.ofNanos(MAX_NANOS);

  /** The largest difference between the clock of a real-time scheduler and the system's. */
  private static final long TOLERANCE_MS = TimeUnit.HOURS.toMillis(1);

  /** The last scheduler that was found to use real time. */
  private static volatile Scheduler real;

  private final long startNanos = System.nanoTime();
  private final long timeoutNanos;

  /** The virtual time, or null. */
  private final Scheduler virtual;

  private final long virtualStartNanos;

  private Deadline(long timeoutNanos) {
    this.timeoutNanos = timeoutNanos;
    Scheduler timers = Schedulers.single();
    this.virtual = isReal(timers) ? null : timers;
    this.virtualStartNanos = virtual == null ? 0 : virtual.now(TimeUnit.NANOSECONDS);
  }

  /** Returns whether a scheduler uses real time. Virtual time starts in 1970. */
  public static boolean isReal(Scheduler timers) {
    if (timers == real) {
      return true;
    }
    long aheadMs = timers.now(TimeUnit.MILLISECONDS) - System.currentTimeMillis();
    if (Math.abs(aheadMs) > TOLERANCE_MS) {
      return false;
    }
    real = timers;
    return true;
  }

  /**
   * Returns a deadline that passes after the given time.
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
    return new Deadline(nanos);
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
    if (isNever()) {
      return MAX_NANOS;
    }
    long left = realNanosLeft();
    return Math.max(0, virtual == null ? left : Math.min(left, virtualNanosLeft()));
  }

  private long realNanosLeft() {
    return timeoutNanos - (System.nanoTime() - startNanos);
  }

  private long virtualNanosLeft() {
    return timeoutNanos - (virtual.now(TimeUnit.NANOSECONDS) - virtualStartNanos);
  }

  /**
   * Runs a task on an executor once this has passed; never, if this never passes.
   *
   * @return cancels the task if it has not started
   */
  public Disposable whenPassed(ScheduledExecutorService executor, Runnable task) {
    if (isNever()) {
      return Disposables.disposed();
    }
    Future<?> timer = executor.schedule(task, realNanosLeft(), TimeUnit.NANOSECONDS);
    return virtual == null
        ? () -> timer.cancel(false)
        : Disposables.composite(() -> timer.cancel(false), inVirtualTime(executor, task));
  }

  private Disposable inVirtualTime(ScheduledExecutorService executor, Runnable task) {
    Disposable.Composite timers = Disposables.composite();
    addTimer(timers, executor, task);
    return timers;
  }

  private void addTimer(
      Disposable.Composite timers, ScheduledExecutorService executor, Runnable task) {
    Runnable timer =
        () -> {
          // While a test advances the time, Reactor adds a new delay to the time before the
          // advance.
          if (virtualNanosLeft() > 0) {
            addTimer(timers, executor, task);
          } else {
            execute(executor, task);
          }
        };
    try {
      long left = Math.max(0, virtualNanosLeft());
      timers.add(virtual.schedule(timer, left, TimeUnit.NANOSECONDS));
    } catch (RejectedExecutionException e) {
      // The test has uninstalled virtual time; only real time counts now.
    }
  }

  private static void execute(ScheduledExecutorService executor, Runnable task) {
    try {
      executor.execute(task);
    } catch (RejectedExecutionException e) {
      // The executor has ended, so the task is no longer needed.
    }
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
    return Text.of(
        "Deadline(%s ms, %s ms left)",
        TimeUnit.NANOSECONDS.toMillis(timeoutNanos), remainingMillis());
  }
}
