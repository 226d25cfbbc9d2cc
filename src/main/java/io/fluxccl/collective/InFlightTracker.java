package io.fluxccl.collective;

import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.agrona.concurrent.NanoClock;
import org.agrona.concurrent.SystemNanoClock;
import reactor.core.Disposable;
import reactor.core.Disposables;
import reactor.core.scheduler.Schedulers;

/**
 * The runs of a lane that are in flight, in the order in which they were enqueued, and their time
 * limit. All have the same limit, so the oldest is the first to be late, and one timer does for all
 * of them: it is set for the oldest run there is when it is set, not once for each run.
 */
final class InFlightTracker {
  /** Where the timer comes from: a way to call a task later. */
  interface Timer {
    /**
     * Calls a task once.
     *
     * @param task short
     * @param delayNs when, from now
     * @return takes it back
     */
    Disposable schedule(Runnable task, long delayNs);
  }

  private final long limitNs;
  private final Consumer<Run> late;
  private final NanoClock clock;
  private final Timer timer;
  private final ConcurrentLinkedQueue<Run> runs = new ConcurrentLinkedQueue<>();
  private final AtomicBoolean armed = new AtomicBoolean();
  private final Disposable.Swap task = Disposables.swap();

  InFlightTracker(long limitNs, Consumer<Run> late) {
    this(
        limitNs,
        late,
        SystemNanoClock.INSTANCE,
        (task, delay) -> Schedulers.single().schedule(task, delay, TimeUnit.NANOSECONDS));
  }

  /**
   * For runs of one lane.
   *
   * @param limitNs how long each may take
   * @param late called with a run that takes longer, and is expected to end them all
   * @param clock for deadlines
   * @param timer of the same time as the clock
   */
  InFlightTracker(long limitNs, Consumer<Run> late, NanoClock clock, Timer timer) {
    this.limitNs = limitNs;
    this.late = late;
    this.clock = clock;
    this.timer = timer;
  }

  /** Counts a run that was just enqueued. Called by one thread at a time. */
  void add(Run run) {
    run.deadlineNs = clock.nanoTime() + limitNs;
    runs.add(run);
    // After the run is there: look() does both the other way round.
    if (!armed.get() && armed.compareAndSet(false, true)) {
      arm(limitNs);
    }
  }

  private void arm(long delayNs) {
    try {
      task.replace(timer.schedule(this::look, Math.max(0, delayNs)));
    } catch (RejectedExecutionException e) {
      armed.set(false); // somebody has shut all schedulers down; perhaps not for the next run
    }
  }

  private void look() {
    trim();
    Run oldest = runs.peek();
    if (oldest == null) {
      armed.set(false);
      oldest = runs.peek();
      if (oldest == null || !armed.compareAndSet(false, true)) {
        return;
      }
    }
    long left = oldest.deadlineNs - clock.nanoTime();
    if (left > 0 || oldest.isOver()) {
      arm(left);
    } else {
      late.accept(oldest);
      armed.set(false);
    }
  }

  /** Forgets runs that are over. Any thread, after one has ended. */
  void trim() {
    Run oldest = runs.peek();
    while (oldest != null && oldest.isOver()) {
      runs.remove(oldest); // is first, unless somebody else has taken it already
      oldest = runs.peek();
    }
  }

  /** The newest of them that is not over, or null. */
  Run newest() {
    Run newest = null;
    for (Run run : runs) {
      newest = run.isOver() ? newest : run;
    }
    return newest;
  }

  /** Ends all of them. */
  void fail(Throwable reason) {
    runs.forEach(run -> run.fail(reason));
  }

  /** How many are counted, for tests. */
  int count() {
    return runs.size();
  }

  /** Takes the timer back, once there are no more runs. */
  void close() {
    task.dispose();
  }
}
