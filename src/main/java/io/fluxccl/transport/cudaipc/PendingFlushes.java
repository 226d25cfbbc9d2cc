package io.fluxccl.transport.cudaipc;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/**
 * Those who wait for a flush of one connection: until the stream is there, their time is up, or the
 * connection fails. No thread waits for them. Thread-safe.
 */
final class PendingFlushes {
  private final Set<CompletableFuture<Void>> pending = ConcurrentHashMap.newKeySet();
  private final Function<Deadline, FluxCclException> timeout;
  private volatile FluxCclException failure;

  /**
   * @param timeout makes the error of one whose deadline passed
   */
  PendingFlushes(Function<Deadline, FluxCclException> timeout) {
    this.timeout = timeout;
  }

  /**
   * Adds one.
   *
   * @param deadline by when
   * @param done the stream's word that it is there
   * @return completes as {@code done}, or with the time-out, or with the connection's failure
   */
  CompletableFuture<Void> add(Deadline deadline, CompletableFuture<Void> done) {
    CompletableFuture<Void> flush = new CompletableFuture<>();
    CompletableFuture<Void> result = new CompletableFuture<>();
    pending.add(flush);
    flush.whenComplete(
        (nothing, reason) -> {
          pending.remove(flush);
          if (reason == null) {
            result.complete(null);
          } else {
            result.completeExceptionally(
                reason instanceof TimeoutException
                    ? timeout.apply(deadline)
                    : FluxCclException.from(reason));
          }
        });
    FluxCclException reason = failure;
    if (reason != null) {
      flush.completeExceptionally(reason); // fail() may have looked before this one was there
    }
    done.whenComplete(
        (nothing, error) -> {
          if (error == null) {
            flush.complete(null);
          } else {
            flush.completeExceptionally(
                error instanceof CompletionException ? error.getCause() : error);
          }
        });
    // Its timer goes with its completion.
    flush.orTimeout(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
    return result;
  }

  /** Ends all, now and later, with that error. */
  void fail(FluxCclException reason) {
    failure = reason;
    pending.forEach(flush -> flush.completeExceptionally(reason));
  }

  /** How many wait. */
  int count() {
    return pending.size();
  }
}
