package io.fluxccl.communicator;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** Set-ups of several steps, one after the other for each tag. Thread-safe. */
final class SetupTurns {
  /** The end of the last one begun, by tag. */
  private final Map<Integer, CompletableFuture<Void>> last = new ConcurrentHashMap<>();

  <T> CompletableFuture<T> run(int tag, Supplier<CompletableFuture<T>> steps) {
    CompletableFuture<Void> ended = new CompletableFuture<>();
    CompletableFuture<Void> before = last.put(tag, ended);
    CompletableFuture<Void> turn =
        before == null ? CompletableFuture.completedFuture(null) : before;
    return turn.thenCompose(free -> steps.get())
        .whenComplete(
            (done, failure) -> {
              last.remove(tag, ended);
              ended.complete(null);
            });
  }
}
