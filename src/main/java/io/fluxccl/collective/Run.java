// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.trace.Outcome;
import java.util.List;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;
import java.util.function.BiConsumer;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Operators;

/**
 * One execution of steps by a lane. It ends once: completed, failed, or withdrawn. Its subscriber
 * may cancel it at any time, from any thread: it continues without the subscriber, unless {@link
 * CollectivesOptions#abortOnCancel}.
 */
abstract class Run implements BiConsumer<Void, Throwable> {
  private static final AtomicIntegerFieldUpdater<Run> STATE =
      AtomicIntegerFieldUpdater.newUpdater(Run.class, "state");
  private static final int WAITING = 0;
  private static final int IN_FLIGHT = 1;

  /** Cancelled, and still in flight: its subscriber gets no more signals. */
  private static final int DETACHED = 2;

  private static final int OVER = 3;

  final Lane lane;
  final List<Step> steps;

  /** The time by which it must be over; set before the lane's in-flight tracker gets it. */
  long deadlineNs;

  /** The number of its last collective of all ranks on this lane; set with the deadline. */
  long lastRound;

  /** Its sequence in the flight recorder, or 0; set under the lane's lock. */
  long recorded;

  /** Its number among those timed by the device, or 0; as {@link #recorded}. */
  int timed;

  /** When it began by the device's clock, or 0; by the thread that ends it. */
  long begunNs;

  /** When it ended by that clock; as {@link #begunNs}. */
  long endedNs;

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
        subscriber -> subscribe(new Subscribed(lane, steps, what, subscriber), subscriber));
  }

  /** {@link #mono(Lane, List, Object)} with a time limit of its own. */
  static Mono<Void> mono(Lane lane, List<Step> steps, Object what, long limitNs) {
    return Mono.fromDirect(
        subscriber -> subscribe(new Limited(lane, steps, what, subscriber, limitNs), subscriber));
  }

  private static void subscribe(Subscribed run, Subscriber<? super Void> subscriber) {
    if (!run.lane.options.abortOnCancel()) {
      // First: a subscriber that cancels at once, as a timeout may, must not change this rank's
      // order of operations, which is the same on all ranks.
      run.begin();
    }
    subscriber.onSubscribe(run);
    run.lane.submit(run);
  }

  /** Returns how long it may take, in ns; {@link LaneWatch#NO_LIMIT_NS}: for ever. */
  long limitNs() {
    return lane.limitNs;
  }

  /** Returns the other lanes that it uses, or null. */
  Lane.Others others() {
    return null;
  }

  @Override
  public final String toString() {
    return description();
  }

  /**
   * Called when it has completed, unless it was cancelled: at most once, as {@link #failed}, and
   * with no lock held.
   */
  abstract void completed();

  /** Called when it has failed, or may not have completed, unless it was cancelled. */
  abstract void failed(Throwable reason);

  /** Called when it was cancelled and continues: neither of the two above will be called. */
  void detached() {}

  /** Returns a text for messages. */
  abstract String description();

  /** Marks that peers may count on it; false if it was withdrawn before. Idempotent. */
  final boolean begin() {
    return STATE.compareAndSet(this, WAITING, IN_FLIGHT) || state != OVER;
  }

  final boolean isOver() {
    return state == OVER;
  }

  final void complete() {
    if (isAwaited(end(Outcome.DONE))) {
      completed();
    }
  }

  final void fail(Throwable reason) {
    if (isAwaited(end(Outcome.FAILED))) {
      failed(reason);
    }
  }

  private static boolean isAwaited(int before) {
    return before == WAITING || before == IN_FLIGHT;
  }

  /**
   * Cancels it. A run in flight continues without its subscriber, because peers may access this
   * rank's memory. If the options abort on cancel, it aborts the communicator.
   */
  public final void cancel() {
    if (STATE.compareAndSet(this, WAITING, OVER)) {
      return;
    }
    if (!lane.options.abortOnCancel()) {
      if (STATE.compareAndSet(this, IN_FLIGHT, DETACHED)) {
        detached();
      }
    } else if (end(Outcome.CANCELLED) == IN_FLIGHT) {
      lane.cancelled(this);
    }
  }

  /** Cancels it unless it has begun. */
  final void withdraw() {
    STATE.compareAndSet(this, WAITING, OVER);
  }

  private int end(Outcome outcome) {
    int before = STATE.getAndSet(this, OVER);
    if (before == IN_FLIGHT || before == DETACHED) {
      boolean detached = before == DETACHED && outcome == Outcome.DONE;
      lane.watch.ended(this, detached ? Outcome.DETACHED : outcome);
    }
    return before;
  }

  /** Called by the stream's completion when the steps are done. */
  @Override
  public final void accept(Void done, Throwable failure) {
    Lane.Others others = others();
    if (others != null) {
      others.abortAtFaults();
    }
    lane.ended(this, failure == null ? lane.algorithms.fault() : failure);
  }

  /** The run of one subscription. */
  private static class Subscribed extends Run implements Subscription {
    private final Object what;

    /** Null once it is detached, so that a run that never ends does not retain its subscriber. */
    private Subscriber<? super Void> actual;

    Subscribed(Lane lane, List<Step> steps, Object what, Subscriber<? super Void> actual) {
      super(lane, steps);
      this.actual = actual;
      this.what = what;
    }

    @Override
    public final void request(long n) {
      Operators.validate(n); // there is no value to wait for
    }

    @Override
    final void completed() {
      actual.onComplete();
    }

    @Override
    final void failed(Throwable reason) {
      actual.onError(reason);
    }

    @Override
    final void detached() {
      actual = null;
    }

    @Override
    final String description() {
      return what.toString();
    }
  }

  /** The run of one subscription to a Mono with a time limit, or other lanes, of its own. */
  private static final class Limited extends Subscribed {
    private final long limitNs;
    private final Lane.Others others;

    Limited(
        Lane lane, List<Step> steps, Object what, Subscriber<? super Void> actual, long limitNs) {
      super(lane, steps, what, actual);
      this.limitNs = limitNs;
      this.others = Lane.Others.of(lane, steps);
    }

    @Override
    long limitNs() {
      return limitNs;
    }

    @Override
    Lane.Others others() {
      return others;
    }
  }
}
