package io.fluxccl.completion;

import io.fluxccl.FluxCclException;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Somebody who wants to know that a queue's stream has reached a sequence number. */
abstract class Waiter {
  private static final Logger LOG = LoggerFactory.getLogger(Waiter.class);

  final long sequence;

  Waiter(long sequence) {
    this.sequence = sequence;
  }

  /** The stream got there. */
  abstract void reached();

  /** The stream will never get there, or nobody may wait for it any more. */
  abstract void failed(FluxCclException failure);

  /** What {@code close()} of the queue does to it. */
  abstract void closed(FluxCclException reason);

  static final class Future extends Waiter {
    final CompletableFuture<Void> future = new CompletableFuture<>();

    Future(long sequence) {
      super(sequence);
    }

    @Override
    void reached() {
      future.complete(null);
    }

    @Override
    void failed(FluxCclException failure) {
      future.completeExceptionally(failure);
    }

    @Override
    void closed(FluxCclException reason) {
      future.completeExceptionally(reason);
    }
  }

  /** Runs in any case, but not before the stream is there or can't get there any more. */
  static final class Action extends Waiter {
    private final Runnable action;

    Action(long sequence, Runnable action) {
      super(sequence);
      this.action = action;
    }

    @Override
    void reached() {
      try {
        action.run();
      } catch (RuntimeException | Error e) {
        // The thread serves all streams of the device; one broken action must not stop it.
        LOG.error("an action behind enqueued work failed", e);
      }
    }

    @Override
    void failed(FluxCclException failure) {
      reached();
    }

    @Override
    void closed(FluxCclException reason) {}
  }
}
