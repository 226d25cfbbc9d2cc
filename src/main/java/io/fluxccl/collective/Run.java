package io.fluxccl.collective;

import java.util.List;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;
import java.util.function.BiConsumer;

/**
 * Steps that somebody wants done, once, by a lane, and of which they hear once: that they are done,
 * or why not. Unless they cancel it, which they may at any time, from any thread.
 */
abstract class Run implements BiConsumer<Void, Throwable> {
  private static final AtomicIntegerFieldUpdater<Run> STATE =
      AtomicIntegerFieldUpdater.newUpdater(Run.class, "state");
  private static final int WAITING = 0;
  private static final int IN_FLIGHT = 1;
  private static final int OVER = 2;

  final Lane lane;
  final List<Step> steps;

  /** By when it must be over; set before it is counted among the lane's runs in flight. */
  long deadlineNs;

  /** The number of its last collective of all ranks on this lane; set as the time limit is. */
  long lastRound;

  private volatile int state = WAITING;

  Run(Lane lane, List<Step> steps) {
    this.lane = lane;
    this.steps = steps;
  }

  @Override
  public final String toString() {
    return description();
  }

  /** It is done. Called at most once, as {@link #failed}; never with a lock held. */
  abstract void completed();

  /** It is not, or may not be, done. */
  abstract void failed(Throwable reason);

  /** For messages. */
  abstract String description();

  /** From now on peers may count on it; false if nobody wants it any more. Idempotent. */
  final boolean begin() {
    return STATE.compareAndSet(this, WAITING, IN_FLIGHT) || state == IN_FLIGHT;
  }

  final boolean isOver() {
    return state == OVER;
  }

  final void complete() {
    if (end() != OVER) {
      completed();
    }
  }

  final void fail(Throwable reason) {
    if (end() != OVER) {
      failed(reason);
    }
  }

  /** Nobody wants it any more. What is in flight aborts: peers may be at this rank's memory. */
  public final void cancel() {
    if (end() == IN_FLIGHT) {
      lane.cancelled(this);
    }
  }

  /** Nobody wants it if it has not begun. */
  final void withdraw() {
    STATE.compareAndSet(this, WAITING, OVER);
  }

  private int end() {
    int before = STATE.getAndSet(this, OVER);
    if (before == IN_FLIGHT) {
      lane.ended();
    }
    return before;
  }

  /** What the stream tells when it is done with the steps. */
  @Override
  public final void accept(Void done, Throwable failure) {
    lane.ended(this, failure);
  }
}
