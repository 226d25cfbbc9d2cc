package io.fluxccl.collective;

import java.util.List;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;
import java.util.function.BiConsumer;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Operators;

/**
 * One execution of steps by a lane. It ends once: completed, failed, or cancelled, which its
 * subscriber may do at any time, from any thread.
 */
abstract class Run implements BiConsumer<Void, Throwable> {
  private static final AtomicIntegerFieldUpdater<Run> STATE =
      AtomicIntegerFieldUpdater.newUpdater(Run.class, "state");
  private static final int WAITING = 0;
  private static final int IN_FLIGHT = 1;
  private static final int OVER = 2;

  final Lane lane;
  final List<Step> steps;

  /** The time by which it must be over; set before the lane's in-flight tracker gets it. */
  long deadlineNs;

  /** The number of its last collective of all ranks on this lane; set with the deadline. */
  long lastRound;

  private volatile int state = WAITING;

  Run(Lane lane, List<Step> steps) {
    this.lane = lane;
    this.steps = steps;
  }

  /**
   * Returns steps as a cold Mono: each subscription is a run of its own.
   *
   * @param lane that executes them
   * @param steps in order
   * @param what the steps are; its text is asked for only if there is a message to write
   */
  static Mono<Void> mono(Lane lane, List<Step> steps, Object what) {
    return Mono.fromDirect(
        subscriber -> {
          Subscribed run = new Subscribed(lane, steps, what, subscriber);
          // First, so that the subscriber can cancel before there is anything to cancel.
          subscriber.onSubscribe(run);
          lane.submit(run);
        });
  }

  @Override
  public final String toString() {
    return description();
  }

  /** Called when it has completed: at most once, as {@link #failed}, and with no lock held. */
  abstract void completed();

  /** Called when it has failed, or may not have completed. */
  abstract void failed(Throwable reason);

  /** Returns a text for messages. */
  abstract String description();

  /** Marks that peers may count on it; false if it was cancelled before. Idempotent. */
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

  /** Cancels it. A run in flight aborts, because peers may access this rank's memory. */
  public final void cancel() {
    if (end() == IN_FLIGHT) {
      lane.cancelled(this);
    }
  }

  /** Cancels it unless it has begun. */
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

  /** Called by the stream's completion when the steps are done. */
  @Override
  public final void accept(Void done, Throwable failure) {
    lane.ended(this, failure);
  }

  /** The run of one subscription. */
  private static final class Subscribed extends Run implements Subscription {
    private final Subscriber<? super Void> actual;
    private final Object what;

    Subscribed(Lane lane, List<Step> steps, Object what, Subscriber<? super Void> actual) {
      super(lane, steps);
      this.actual = actual;
      this.what = what;
    }

    @Override
    public void request(long n) {
      Operators.validate(n); // there is no value to wait for
    }

    @Override
    void completed() {
      actual.onComplete();
    }

    @Override
    void failed(Throwable reason) {
      actual.onError(reason);
    }

    @Override
    String description() {
      return what.toString();
    }
  }
}
