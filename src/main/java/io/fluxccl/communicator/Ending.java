package io.fluxccl.communicator;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.AbortFlag;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import reactor.core.scheduler.Schedulers;

/** That a communicator ends, once and for one reason: who learns of it, in which order. */
final class Ending implements AutoCloseable {
  private final AbortFlag abortFlag;
  private final AtomicReference<FluxCclException> reason = new AtomicReference<>();
  private final CompletableFuture<FluxCclException> told = new CompletableFuture<>();
  private final Map<CompletableFuture<?>, Boolean> inFlight = new ConcurrentHashMap<>();

  /** With the word that kernels watch; closed with this. */
  Ending(AbortFlag abortFlag) {
    this.abortFlag = abortFlag;
  }

  AbortFlag abortFlag() {
    return abortFlag;
  }

  /** Why it has ended, or null. */
  FluxCclException reason() {
    return reason.get();
  }

  /** Makes kernels give up and new operations fail; true for the first reason only. */
  boolean begin(FluxCclException why) {
    if (!reason.compareAndSet(null, why)) {
      return false;
    }
    abortFlag.set();
    return true;
  }

  /**
   * Completes {@link #told()}, and fails what is in flight: runs what users chained to that. Not
   * what they chained to {@code told()}, which may wait for what ends here and behind this.
   */
  void tell(FluxCclException why) {
    told.complete(why);
    inFlight.keySet().forEach(operation -> operation.completeExceptionally(why));
  }

  CompletableFuture<FluxCclException> told() {
    return told.isDone() ? told.copy() : told.thenApplyAsync(why -> why, Ending::aside);
  }

  /** Runs what may block on a thread that the library does not need. */
  static void aside(Runnable task) {
    try {
      Schedulers.boundedElastic().schedule(task);
    } catch (RejectedExecutionException e) {
      task.run();
    }
  }

  /** Ends an operation with the reason, should there be one before it is done. */
  <T> CompletableFuture<T> tie(CompletableFuture<T> operation) {
    inFlight.put(operation, true);
    operation.whenComplete((done, failure) -> inFlight.remove(operation));
    FluxCclException why = reason();
    if (why != null) {
      operation.completeExceptionally(why);
    }
    return operation;
  }

  @Override
  public void close() {
    abortFlag.close();
  }
}
