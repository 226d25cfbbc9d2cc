// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.concurrent.Timers;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import reactor.core.Disposable;
import reactor.core.Disposables;
import reactor.core.scheduler.Scheduler;

/**
 * The runs of a lane that are in flight, in the order in which they were enqueued, and their time
 * limits. Most have the same limit, so one timer serves all of them: it is set for the earliest
 * deadline, and again only for a run with an earlier one.
 *
 * <p>A run that is enqueued while Reactor's virtual time is installed has a timer of its own, which
 * follows the virtual time.
 */
final class InFlightTracker {
  /** The limit of a run that may take for ever. */
  static final long NO_LIMIT_NS = Deadline.NO_LIMIT.toNanos();

  private static final long NONE = Long.MIN_VALUE;

  private final Consumer<Run> late;
  final ConcurrentLinkedQueue<Run> runs = new ConcurrentLinkedQueue<>();
  private final Disposable.Swap task = Disposables.swap();

  /** The last of the timers that had real time. */
  private volatile Scheduler timer;

  /** The time of the timer's next check, or {@link #NONE}. Written under this object's lock. */
  private volatile long nextLook = NONE;

  /**
   * Creates the tracker of one lane.
   *
   * @param late called with a run that takes longer than its limit, and is expected to end them all
   */
  InFlightTracker(Consumer<Run> late) {
    this.late = late;
  }

  /** Adds a run that was just enqueued. Called by one thread at a time. */
  void add(Run run) {
    long limitNs = run.limitNs();
    Scheduler current = Timers.current();
    boolean real = current == timer || isReal(current);
    boolean limited = limitNs < NO_LIMIT_NS;
    run.deadlineNs = real && limited ? System.nanoTime() + limitNs : NONE;
    runs.add(run);
    if (!real && limited) {
      schedule(current, () -> endIfInFlight(run), limitNs);
    } else if (limited && isBeforeNextLook(run.deadlineNs)) {
      // After the run is added: look() uses both in the opposite order.
      arm(run.deadlineNs);
    }
  }

  /** Uses a timer from now on, unless its time is virtual. */
  private synchronized boolean isReal(Scheduler current) {
    if (!Deadline.isReal(current)) {
      return false;
    }
    timer = current;
    nextLook = NONE; // the previous one was shut down, or a virtual one was removed
    return true;
  }

  private void endIfInFlight(Run run) {
    if (!run.isOver()) {
      late.accept(run);
    }
  }

  /** Returns the timer's task, or null if all schedulers were shut down. */
  private static Disposable schedule(Scheduler timer, Runnable what, long delayNs) {
    try {
      return timer.schedule(what, Math.max(0, delayNs), TimeUnit.NANOSECONDS);
    } catch (RejectedExecutionException e) {
      return null; // the next run may get new schedulers
    }
  }

  private boolean isBeforeNextLook(long deadlineNs) {
    long next = nextLook;
    return next == NONE || deadlineNs - next < 0;
  }

  private synchronized void arm(long deadlineNs) {
    if (!isBeforeNextLook(deadlineNs)) {
      return;
    }
    nextLook = deadlineNs;
    Disposable next = schedule(timer, this::look, deadlineNs - System.nanoTime());
    if (next == null) {
      nextLook = NONE;
    } else {
      task.update(next);
    }
  }

  private void look() {
    synchronized (this) {
      nextLook = NONE;
    }
    trim();
    Run first = earliest();
    if (first == null) {
      return;
    }
    if (first.deadlineNs - System.nanoTime() > 0) {
      arm(first.deadlineNs);
    } else {
      late.accept(first);
    }
  }

  /** Returns the run with the earliest deadline of those that are not over, or null. */
  private Run earliest() {
    Run first = null;
    for (Run run : runs) {
      if (!run.isOver()
          && run.deadlineNs != NONE
          && (first == null || run.deadlineNs - first.deadlineNs < 0)) {
        first = run;
      }
    }
    return first;
  }

  /** Removes runs that are over. Called by any thread after a run has ended. */
  void trim() {
    Run oldest = runs.peek();
    while (oldest != null && oldest.isOver()) {
      runs.remove(oldest); // the first, unless another thread has removed it already
      oldest = runs.peek();
    }
  }

  /** Returns the newest run that is not over, or null. */
  Run newest() {
    Run newest = null;
    for (Run run : runs) {
      newest = run.isOver() ? newest : run;
    }
    return newest;
  }

  /** Fails all runs. */
  void fail(Throwable reason) {
    runs.forEach(run -> run.fail(reason));
  }

  /** Cancels the timer, after the last run. */
  void close() {
    task.dispose();
  }
}
