// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.Text;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;

/** Set-up operations from when they are queued until they have ended. Thread-safe. */
final class SetupQueue {
  private record Started(SetupOperation operation, CompletableFuture<Void> done, long sinceNanos) {
    String line(long now) {
      long millis = TimeUnit.NANOSECONDS.toMillis(now - sinceNanos);
      return Text.of("%s waits since %s ms", operation.describe(), millis);
    }
  }

  // Guarded by itself.
  private final List<SetupOperation> queue = new ArrayList<>();
  private final Map<SetupOperation, Started> started = new ConcurrentHashMap<>();

  /** The end of the last set-up of several steps, by tag. */
  private final Map<Integer, CompletableFuture<Void>> last = new ConcurrentHashMap<>();

  private final Supplier<FluxCclException> failure;
  private final Function<FluxCclException, CompletableFuture<FluxCclException>> verdict;

  /**
   * Creates an empty queue.
   *
   * @param failure the reason for which every operation fails from now on, or null
   * @param verdict returns the reason with which an operation that has failed ends, once it is
   *     known
   */
  SetupQueue(
      Supplier<FluxCclException> failure,
      Function<FluxCclException, CompletableFuture<FluxCclException>> verdict) {
    this.failure = failure;
    this.verdict = verdict;
  }

  /** Queues an operation; it fails at once when all operations do. */
  void add(SetupOperation operation) {
    synchronized (queue) {
      queue.add(operation);
    }
    FluxCclException reason = failure.get();
    if (reason != null) {
      failQueued(reason);
    }
  }

  /** Runs all that is queued; completes when all have ended, with the first error in order. */
  CompletableFuture<Void> run(Deadline deadline) {
    return run(take(0), deadline);
  }

  /**
   * Runs what is queued by a function, and no more.
   *
   * @param queueing calls {@link #add}, and nothing that waits; no other thread queues until then
   * @return the function's result, once all that it queued is done; or the first error
   */
  <T> CompletableFuture<T> run(Deadline deadline, Supplier<T> queueing) {
    List<SetupOperation> batch;
    T queued;
    synchronized (queue) {
      int before = queue.size();
      try {
        queued = queueing.get();
      } catch (RuntimeException | Error e) {
        take(before).forEach(operation -> operation.fail(FluxCclException.from(e)));
        throw e;
      }
      batch = take(before);
    }
    return run(batch, deadline).thenApply(done -> queued);
  }

  /** {@link Communicator#inTurn}. */
  <T> CompletableFuture<T> inTurn(int tag, Supplier<CompletableFuture<T>> steps) {
    CompletableFuture<Void> ended = NonblockingFuture.create();
    CompletableFuture<Void> before = last.put(tag, ended);
    CompletableFuture<Void> free =
        before == null ? NonblockingFuture.copyOf(CompletableFuture.completedFuture(null)) : before;
    return free.thenCompose(now -> steps.get())
        .whenComplete(
            (done, failure) -> {
              last.remove(tag, ended);
              ended.complete(null);
            });
  }

  private CompletableFuture<Void> run(List<SetupOperation> batch, Deadline deadline) {
    FluxCclException reason = failure.get();
    if (reason != null) {
      batch.forEach(operation -> operation.fail(reason));
      return CompletableFuture.failedFuture(reason);
    }
    return start(batch, deadline);
  }

  private List<SetupOperation> take(int from) {
    synchronized (queue) {
      // Fewer than before, if all have failed in the meantime.
      List<SetupOperation> tail = queue.subList(Math.min(from, queue.size()), queue.size());
      List<SetupOperation> taken = new ArrayList<>(tail);
      tail.clear();
      return taken;
    }
  }

  /** Starts all operations; completes when all have ended, with the first error in order. */
  CompletableFuture<Void> start(List<SetupOperation> batch, Deadline deadline) {
    List<Throwable> refused = new ArrayList<>(batch.size());
    batch.forEach(operation -> refused.add(begin(operation, deadline)));
    List<CompletableFuture<Void>> all = new ArrayList<>(batch.size());
    for (int i = 0; i < batch.size(); i++) {
      all.add(end(batch.get(i), refused.get(i), deadline));
    }
    return NonblockingFuture.copyOf(
            CompletableFuture.allOf(all.toArray(new CompletableFuture<?>[0])))
        .handle(
            (done, failure) -> {
              all.forEach(CompletableFuture::join); // throws the first failure in order
              return null;
            });
  }

  /** Returns why an operation could not begin, or null. An Error, too, ends only this one. */
  private static Throwable begin(SetupOperation operation, Deadline deadline) {
    try {
      operation.beginSetup(deadline);
      return null;
    } catch (Throwable e) {
      return e;
    }
  }

  private CompletableFuture<Void> end(
      SetupOperation operation, Throwable refused, Deadline deadline) {
    CompletableFuture<Void> ending;
    try {
      ending =
          refused == null ? operation.endSetup(deadline) : CompletableFuture.failedFuture(refused);
    } catch (Throwable e) {
      ending = CompletableFuture.failedFuture(e);
    }
    CompletableFuture<Void> done = new CompletableFuture<>();
    started.put(operation, new Started(operation, done, System.nanoTime()));
    ending.whenComplete(
        (result, failure) -> {
          if (failure == null) {
            started.remove(operation);
            done.complete(null);
          } else {
            verdict
                .apply(FluxCclException.from(failure))
                .thenAccept(reason -> fail(operation, done, reason));
          }
        });
    FluxCclException reason = failure.get();
    if (reason != null) {
      failStarted(reason); // a concurrent fail() may have run before this operation was added
    }
    return done;
  }

  /** Fails all operations, those that have started as well. */
  void fail(FluxCclException reason) {
    failQueued(reason);
    failStarted(reason);
  }

  private void failQueued(FluxCclException reason) {
    take(0).forEach(operation -> operation.fail(reason));
  }

  private void failStarted(FluxCclException reason) {
    // One by one: an operation that is added concurrently either fails here or fails itself.
    for (Started one : started.values()) {
      fail(one.operation(), one.done(), reason);
    }
  }

  private void fail(
      SetupOperation operation, CompletableFuture<Void> done, FluxCclException reason) {
    started.remove(operation);
    operation.fail(reason);
    done.completeExceptionally(reason);
  }

  /** Returns a line for each operation that has started. */
  List<String> lines() {
    long now = System.nanoTime();
    return started.values().stream().map(one -> one.line(now)).toList();
  }
}
