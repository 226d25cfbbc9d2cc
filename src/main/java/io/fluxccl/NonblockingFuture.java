package io.fluxccl;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import reactor.core.publisher.Mono;

/**
 * The result of a set-up operation: queued now, started by {@code Communicator.setup()}, completed
 * as soon as its own peer has answered. Blocking on a future that was never started would never
 * end, so {@link #join()} and {@link #get()} throw an IllegalStateException instead; so do those of
 * derived futures ({@code thenApply} and so on).
 *
 * @param <T> the operation's result
 */
public final class NonblockingFuture<T> extends CompletableFuture<T> {
  private final AtomicReference<String> notStarted;

  private NonblockingFuture(AtomicReference<String> notStarted) {
    this.notStarted = notStarted;
  }

  /**
   * Returns a future whose operation is queued and not started.
   *
   * @param operation for messages, for example {@code connectOnSetup(rank=1, tag=0)}
   * @param <T> the operation's result
   */
  public static <T> NonblockingFuture<T> queued(String operation) {
    return new NonblockingFuture<>(new AtomicReference<>(operation));
  }

  /**
   * Records that the operation has started: from now on blocking is allowed. Called by the set-up.
   */
  public void start() {
    notStarted.set(null);
  }

  /** Returns this future as a Mono. Cancelling the Mono does not cancel the operation. */
  public Mono<T> mono() {
    return Mono.fromFuture(this, true);
  }

  @Override
  public <U> CompletableFuture<U> newIncompleteFuture() {
    return new NonblockingFuture<>(notStarted);
  }

  @Override
  public T join() {
    refuseBeforeStart();
    return super.join();
  }

  @Override
  public T get() throws InterruptedException, ExecutionException {
    refuseBeforeStart();
    return super.get();
  }

  @Override
  public T get(long timeout, TimeUnit unit)
      throws InterruptedException, ExecutionException, TimeoutException {
    refuseBeforeStart();
    return super.get(timeout, unit);
  }

  private void refuseBeforeStart() {
    String operation = notStarted.get();
    if (operation != null && !isDone()) {
      throw new IllegalStateException(
          operation
              + " is queued and not started; call Communicator.setup() before waiting for it");
    }
  }
}
