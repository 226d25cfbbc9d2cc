// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/**
 * The awaited flushes of one connection. Each completes when the stream is done, its deadline
 * passes, or the connection fails. No thread blocks on them. Thread-safe.
 */
final class PendingFlushes {
  private final Set<CompletableFuture<Void>> pending = ConcurrentHashMap.newKeySet();
  private final Function<Deadline, FluxCclException> timeout;
  private volatile FluxCclException failure;

  /**
   * Creates an empty set.
   *
   * @param timeout creates the error of a flush whose deadline has passed
   */
  PendingFlushes(Function<Deadline, FluxCclException> timeout) {
    this.timeout = timeout;
  }

  /**
   * Adds a flush.
   *
   * @param done a future that completes when the stream is done
   * @return a future that completes as {@code done} does, with the timeout error, or with the
   *     connection's failure
   */
  CompletableFuture<Void> add(Deadline deadline, CompletableFuture<Void> done) {
    CompletableFuture<Void> flush = new CompletableFuture<>();
    pending.add(flush);
    CompletableFuture<Void> result = NonblockingFuture.create();
    flush.whenComplete(
        (nothing, reason) -> {
          pending.remove(flush);
          complete(result, deadline, reason);
        });
    FluxCclException reason = failure;
    if (reason != null) {
      flush.completeExceptionally(reason); // fail() may have missed this one
    }
    done.whenComplete((nothing, error) -> complete(flush, deadline, error));
    // The completion of the future cancels its timer.
    flush.orTimeout(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
    return result;
  }

  private void complete(CompletableFuture<Void> future, Deadline deadline, Throwable error) {
    if (error == null) {
      future.complete(null);
    } else if (error instanceof TimeoutException) {
      future.completeExceptionally(timeout.apply(deadline));
    } else {
      future.completeExceptionally(FluxCclException.from(error));
    }
  }

  /** Fails all flushes, including those added later. */
  void fail(FluxCclException reason) {
    failure = reason;
    pending.forEach(flush -> flush.completeExceptionally(reason));
  }
}
