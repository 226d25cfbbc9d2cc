package io.fluxccl.completion;

import io.fluxccl.FluxCclException;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A future or an action that waits until a queue's stream has reached a sequence number. */
abstract class Waiter {
  private static final Logger LOG = LoggerFactory.getLogger(Waiter.class);

  final long sequence;

  Waiter(long sequence) {
    this.sequence = sequence;
  }

  /** Called when the stream has reached the number. */
  abstract void reached();

  /** Called when the stream will never reach the number. */
  abstract void failed(FluxCclException failure);

  /** Called when the queue is closed. */
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

  /** Runs in any case, but not before the stream has reached the number or no longer can. */
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
