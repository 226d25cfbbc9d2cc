package io.fluxccl.netplugin;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import reactor.core.publisher.MonoSink;

/**
 * Something that a subscriber waits for. Confined to the loop, but for {@link #abandon} and {@link
 * #fail}. When nobody waits any more, what the plugin has not begun is dropped; what it has begun
 * goes on to its end, because there is no way to take it back, and its result is discarded.
 *
 * @param <T> what comes of it, never null
 */
abstract class NetOperation<T> {
  private final Object lane;
  private final Supplier<String> description;
  private final Deadline deadline;
  private final MonoSink<T> sink;

  /** Nobody waits any more: the subscriber has gone or has its answer. */
  private final AtomicBoolean abandoned = new AtomicBoolean();

  /**
   * @param lane operations of the same one begin in the order in which they came
   * @param description what it is and with whom, for the error
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

  /** Names the operation in messages. */
  final String description() {
    return description.get();
  }

  /** Goes on; null: not yet. */
  abstract T poll();

  /** Whether the plugin has begun it. */
  abstract boolean hasBegun();

  /** Lets go of what was begun, because nobody will go on with it. Called once, by the loop. */
  void drop() {}

  /** Takes what nobody waits for any more. */
  void discard(T result) {}

  /** Whether it ends the use of what those before it in its lane use. */
  boolean isClose() {
    return false;
  }

  /** Whether it is not over for who subscribed. */
  final boolean isAwaited() {
    return !abandoned.get();
  }

  /** The subscriber has gone. Any thread. */
  final void abandon() {
    abandoned.set(true);
  }

  /** Goes on; true when it is over. */
  final boolean advance() {
    return expire() || goOn();
  }

  /**
   * Goes on, of a close behind what has begun: leaves that the rest of its own time, no more. True
   * when it is over.
   */
  final boolean advanceBehindOthers() {
    if (abandoned.get()) {
      return true;
    }
    return deadline.expired() && goOn();
  }

  /** Ends what its time is over for; true when it is over because nobody waits for it. */
  final boolean expire() {
    if (!abandoned.get() && deadline.expired()) {
      fail(
          new Timeout(
              FluxCclException.NO_RANK,
              String.format(
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
    } catch (RuntimeException e) {
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

  /** Ends it for the subscriber, if one still waits. Any thread. */
  final void fail(RuntimeException reason) {
    if (abandoned.compareAndSet(false, true)) {
      sink.error(FluxCclException.from(reason));
    }
  }
}
