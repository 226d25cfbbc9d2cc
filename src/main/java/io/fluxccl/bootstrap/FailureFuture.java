package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Why the job ended. Many wait for it, so none of them may complete or cancel it. */
final class FailureFuture extends CompletableFuture<FluxCclException> {

  /** Completes it; the first reason counts. */
  boolean settle(FluxCclException reason) {
    return super.complete(reason);
  }

  @Override
  public <U> CompletableFuture<U> newIncompleteFuture() {
    return new CompletableFuture<>();
  }

  @Override
  public boolean complete(FluxCclException value) {
    return false;
  }

  @Override
  public boolean completeExceptionally(Throwable failure) {
    return false;
  }

  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    return false;
  }

  @Override
  public CompletableFuture<FluxCclException> orTimeout(long timeout, TimeUnit unit) {
    return copy().orTimeout(timeout, unit);
  }

  @Override
  public CompletableFuture<FluxCclException> completeOnTimeout(
      FluxCclException value, long timeout, TimeUnit unit) {
    return copy().completeOnTimeout(value, timeout, unit);
  }

  @Override
  public void obtrudeValue(FluxCclException value) {
    throw new UnsupportedOperationException("the reason is the bootstrap's");
  }

  @Override
  public void obtrudeException(Throwable failure) {
    throw new UnsupportedOperationException("the reason is the bootstrap's");
  }
}
