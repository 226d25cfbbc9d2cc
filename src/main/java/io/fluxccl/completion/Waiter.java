// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A future or an action that waits until a queue's stream has reached a sequence number. An action
 * always runs, after the stream has reached the number or has failed.
 */
final class Waiter {
  private static final Logger LOG = LoggerFactory.getLogger(Waiter.class);

  final long sequence;

  /** Null for an action. */
  final CompletableFuture<Void> future;

  private final Runnable action;

  private Waiter(long sequence, CompletableFuture<Void> future, Runnable action) {
    this.sequence = sequence;
    this.future = future;
    this.action = action;
  }

  static Waiter future(long sequence) {
    return new Waiter(sequence, NonblockingFuture.create(), null);
  }

  static Waiter action(long sequence, Runnable action) {
    return new Waiter(sequence, null, action);
  }

  /**
   * Completes the future or runs the action. Called when the stream has reached the number or has
   * failed.
   *
   * @param failure the stream's failure, or null
   */
  void ended(FluxCclException failure) {
    if (future == null) {
      try {
        action.run();
      } catch (RuntimeException | Error e) {
        // The thread serves all streams of the device; one failing action must not stop it.
        LOG.error("callback after enqueued work failed; the completion thread continues", e);
      }
    } else if (failure == null) {
      future.complete(null);
    } else {
      future.completeExceptionally(failure);
    }
  }

  /** Fails the future; an action still waits. Called when the queue is closed. */
  void closed(FluxCclException reason) {
    if (future != null) {
      future.completeExceptionally(reason);
    }
  }
}
