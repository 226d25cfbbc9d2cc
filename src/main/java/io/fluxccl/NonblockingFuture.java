// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * A future of the library, which refuses a wait that would not end: {@link #join()} and {@link
 * #get()} throw an IllegalStateException instead. So do those of derived futures ({@code thenApply}
 * and so on), but not those of {@code CompletableFuture.allOf} and {@code Mono.toFuture}. They
 * refuse
 *
 * <ul>
 *   <li>on a thread that must not block, as Reactor's {@code block()} does there: it may be the
 *       thread that would complete the future;
 *   <li>the result of a set-up operation that {@code Communicator.setup()} has not started.
 * </ul>
 *
 * <pre>{@code
 * stream.completion().thenRun(() -> stream.completion().join()); // BAD: IllegalStateException
 * stream.completion().thenCompose(done -> stream.completion()); // GOOD
 * }</pre>
 *
 * @param <T> the operation's result
 */
public final class NonblockingFuture<T> extends CompletableFuture<T> {
  /** The operation while it is queued and not started; null if it was never queued. */
  private final AtomicReference<String> notStarted;

  private NonblockingFuture(AtomicReference<String> notStarted) {
    this.notStarted = notStarted;
  }

  /**
   * Returns a future whose operation has started.
   *
   * @param <T> the operation's result
   */
  public static <T> NonblockingFuture<T> create() {
    return new NonblockingFuture<>(null);
  }

  /**
   * Returns a future that completes as another one does, on the same thread.
   *
   * @param stage of any kind
   * @param <T> the operation's result
   */
  public static <T> NonblockingFuture<T> copyOf(CompletableFuture<T> stage) {
    NonblockingFuture<T> copy = create();
    stage.whenComplete(
        (result, failure) -> {
          if (failure == null) {
            copy.complete(result);
          } else {
            copy.completeExceptionally(failure);
          }
        });
    return copy;
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
    if (notStarted != null) {
      notStarted.set(null);
    }
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
    refuseToHang();
    return super.join();
  }

  @Override
  public T get() throws InterruptedException, ExecutionException {
    refuseToHang();
    return super.get();
  }

  @Override
  public T get(long timeout, TimeUnit unit)
      throws InterruptedException, ExecutionException, TimeoutException {
    refuseToHang();
    return super.get(timeout, unit);
  }

  private void refuseToHang() {
    if (isDone()) {
      return;
    }
    String operation = notStarted == null ? null : notStarted.get();
    if (operation != null) {
      throw new IllegalStateException(
          operation
              + " is queued and not started; call Communicator.setup() before waiting for it");
    }
    if (Schedulers.isInNonBlockingThread()) {
      throw new IllegalStateException(
          "join() and get() are blocking, which is not supported in thread "
              + Thread.currentThread().getName()
              + ", which may have to complete this future; use thenCompose, or thenApplyAsync with"
              + " an executor of your own");
    }
  }
}
