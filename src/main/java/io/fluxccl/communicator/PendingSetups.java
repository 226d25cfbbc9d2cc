package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The set-up operations that were started and have not ended. Thread-safe. */
final class PendingSetups {
  private record Started(Setupable operation, CompletableFuture<Void> done, long sinceNanos) {}

  private final Map<Setupable, Started> started = new ConcurrentHashMap<>();
  private final Supplier<FluxCclException> failure;

  /**
   * @param failure why nothing can end well any more, or null
   */
  PendingSetups(Supplier<FluxCclException> failure) {
    this.failure = failure;
  }

  /** Starts them all; completes when all have ended, with the first error in order. */
  CompletableFuture<Void> run(List<Setupable> batch, Deadline deadline) {
    List<Throwable> refused = new ArrayList<>(batch.size());
    batch.forEach(operation -> refused.add(begin(operation, deadline)));
    List<CompletableFuture<Void>> all = new ArrayList<>(batch.size());
    for (int i = 0; i < batch.size(); i++) {
      all.add(end(batch.get(i), refused.get(i), deadline));
    }
    return CompletableFuture.allOf(all.toArray(new CompletableFuture<?>[0]))
        .handle(
            (done, failure) -> {
              if (failure != null) {
                throw FluxCclException.from(firstFailureOf(all));
              }
              return null;
            });
  }

  /** What kept it from beginning, or null: an Error, too, ends it and keeps no other from it. */
  private static Throwable begin(Setupable operation, Deadline deadline) {
    try {
      operation.beginSetup(deadline);
      return null;
    } catch (Throwable e) {
      return e;
    }
  }

  private CompletableFuture<Void> end(Setupable operation, Throwable refused, Deadline deadline) {
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
          started.remove(operation);
          if (failure == null) {
            done.complete(null);
          } else {
            FluxCclException reason = FluxCclException.from(failure);
            operation.fail(reason);
            done.completeExceptionally(reason);
          }
        });
    FluxCclException reason = failure.get();
    if (reason != null) {
      fail(reason); // who failed all others may have looked before this one was there
    }
    return done;
  }

  private static Throwable firstFailureOf(List<CompletableFuture<Void>> all) {
    for (CompletableFuture<Void> one : all) {
      if (one.isCompletedExceptionally()) {
        return one.handle((done, failure) -> failure).join();
      }
    }
    throw new AssertionError("no operation failed");
  }

  void fail(FluxCclException reason) {
    // One by one: what comes meanwhile may be missed here, and must be there for who looks next.
    for (Started one : started.values()) {
      started.remove(one.operation());
      one.operation().fail(reason);
      one.done().completeExceptionally(reason);
    }
  }

  void dump(StringBuilder out) {
    long now = System.nanoTime();
    for (Started one : started.values()) {
      out.append("  ")
          .append(one.operation().describe())
          .append(" waits since ")
          .append(TimeUnit.NANOSECONDS.toMillis(now - one.sinceNanos()))
          .append(" ms\n");
    }
  }
}
