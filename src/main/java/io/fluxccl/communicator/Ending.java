package io.fluxccl.communicator;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.AbortFlag;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;

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

  /** Fails what is in flight, and completes {@link #told()}: runs what users chained to those. */
  void tell(FluxCclException why) {
    told.complete(why);
    inFlight.keySet().forEach(operation -> operation.completeExceptionally(why));
  }

  CompletableFuture<FluxCclException> told() {
    return told.copy();
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
