// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import reactor.core.publisher.MonoSink;

/**
 * An operation that a subscriber waits for. Only the loop's thread uses it, except for {@link
 * #abandon} and {@link #fail}. When no subscriber waits any more, the loop drops an operation that
 * the plugin has not begun. It polls one that has begun to its end, because a plugin can't cancel
 * it, and discards the result.
 *
 * @param <T> the result, never null
 */
abstract class NetOperation<T> {
  private final Object lane;
  private final Supplier<String> description;
  private final Deadline deadline;
  private final MonoSink<T> sink;

  /** Whether no subscriber waits any more: it has cancelled or has its result. */
  private final AtomicBoolean abandoned = new AtomicBoolean();

  /**
   * Creates an operation.
   *
   * @param lane operations of the same lane begin in the order in which they were submitted
   * @param description names the operation and its peer, for errors
   * @param deadline when the operation fails with {@link Timeout}
   * @param sink receives the result or the error
   */
  NetOperation(Object lane, Supplier<String> description, Deadline deadline, MonoSink<T> sink) {
    this.lane = lane;
    this.description = description;
    this.deadline = deadline;
    this.sink = sink;
  }

  final Object lane() {
    return lane;
  }

  /** Returns the name of the operation, for messages. */
  final String description() {
    return description.get();
  }

  /** Polls the plugin; returns the result, or null if there is none yet. */
  abstract T poll();

  /** Returns whether the plugin has begun the operation. */
  abstract boolean hasBegun();

  /**
   * Releases what the operation has begun, because the loop ends. Called once, by the loop's
   * thread.
   */
  void drop() {}

  /** Releases a result that no subscriber waits for. */
  void discard(T result) {}

  /** Returns whether the operation closes an object that earlier operations of its lane use. */
  boolean isClose() {
    return false;
  }

  /** Returns whether a subscriber still waits for the operation. */
  final boolean isAwaited() {
    return !abandoned.get();
  }

  /** Records that the subscriber has cancelled. Called by any thread. */
  final void abandon() {
    abandoned.set(true);
  }

  /** Advances the operation; returns true when it is complete. */
  final boolean advance() {
    return expire() || goOn();
  }

  /**
   * Advances a close while earlier operations are in progress. It runs only at its own deadline, so
   * that they can complete until then. Returns true when it is complete.
   */
  final boolean advanceBehindOthers() {
    if (abandoned.get()) {
      return true;
    }
    return deadline.expired() && goOn();
  }

  /**
   * Fails the operation if its deadline has expired. Returns true if no subscriber waits for it and
   * the plugin has not begun it.
   */
  final boolean expire() {
    if (!abandoned.get() && deadline.expired()) {
      fail(
          new Timeout(
              FluxCclException.NO_RANK,
              Text.of(
                  "%s was not done within %s ms; is the peer alive, and does it do its part?",
                  description.get(), deadline.timeout().toMillis())));
    }
    return abandoned.get() && !hasBegun();
  }

  private boolean goOn() {
    try {
      T result = poll();
      if (result != null) {
        deliver(result);
      }
      return result != null;
    } catch (RuntimeException | Error e) { // the loop serves all other operations, too
      fail(e);
      return true;
    }
  }

  private void deliver(T result) {
    if (abandoned.compareAndSet(false, true)) {
      sink.success(result);
    } else {
      discard(result);
    }
  }

  /** Fails the operation for its subscriber, if one still waits. Called by any thread. */
  final void fail(Throwable reason) {
    if (abandoned.compareAndSet(false, true)) {
      sink.error(FluxCclException.from(reason));
    }
  }
}
