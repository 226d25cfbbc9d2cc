package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** Set-up operations from when they are queued until they have ended. Thread-safe. */
final class SetupQueue {
  // Guarded by itself.
  private final List<Setupable> queue = new ArrayList<>();
  private final PendingSetups pending;
  private final Supplier<FluxCclException> failure;

  /**
   * An empty queue.
   *
   * @param failure why nothing can end well any more, or null
   */
  SetupQueue(Supplier<FluxCclException> failure) {
    this.failure = failure;
    this.pending = new PendingSetups(failure);
  }

  /** Queues an operation; it ends at once when nothing can end well any more. */
  void add(Setupable operation) {
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
   * Runs what is queued meanwhile, and no more.
   *
   * @param queueing calls {@link #add}, and nothing that waits; nobody else can queue until then
   * @return what {@code queueing} gave, once all that it queued is done; or the first error
   */
  <T> CompletableFuture<T> run(Deadline deadline, Supplier<T> queueing) {
    List<Setupable> batch;
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

  private CompletableFuture<Void> run(List<Setupable> batch, Deadline deadline) {
    FluxCclException reason = failure.get();
    if (reason != null) {
      batch.forEach(operation -> operation.fail(reason));
      return CompletableFuture.failedFuture(reason);
    }
    return pending.run(batch, deadline);
  }

  private List<Setupable> take(int from) {
    synchronized (queue) {
      // Fewer than before, if all failed meanwhile.
      List<Setupable> tail = queue.subList(Math.min(from, queue.size()), queue.size());
      List<Setupable> taken = new ArrayList<>(tail);
      tail.clear();
      return taken;
    }
  }

  /** Ends all of them, those that run as well. */
  void fail(FluxCclException reason) {
    failQueued(reason);
    pending.fail(reason);
  }

  private void failQueued(FluxCclException reason) {
    take(0).forEach(operation -> operation.fail(reason));
  }

  /** A line for each that runs. */
  void dump(StringBuilder out) {
    pending.dump(out);
  }
}
