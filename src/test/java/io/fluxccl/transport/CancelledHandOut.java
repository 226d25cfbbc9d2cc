// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.awaitility.Awaitility;

/**
 * Cancels connect futures, or lets them time out, while the transport completes them: the future
 * has already ended, but the callbacks of the transport run only after the connection exists.
 */
public final class CancelledHandOut {
  /**
   * Ends a future as a caller's {@code cancel} does, or as {@code orTimeout} does at its timeout.
   */
  private static final List<Consumer<CompletableFuture<?>>> ENDINGS =
      List.of(
          future -> future.cancel(true),
          future -> future.completeExceptionally(new TimeoutException("of a test")));

  private CancelledHandOut() {}

  /**
   * Asserts that rank 0 closes all of its ends, and that rank 1 is notified.
   *
   * @param closed whether nothing is open at rank 0
   */
  public static void assertClosed(ConnectedRanks ranks, BooleanSupplier closed) throws Exception {
    assertClosed(ranks, task -> {}, closed);
  }

  /**
   * As {@link #assertClosed(ConnectedRanks, BooleanSupplier)}, for transports whose end may be
   * connected before the peer calls connect.
   *
   * @param rank0 runs a task on the thread that connects rank 0's ends; the task blocks it until
   *     the future has ended
   */
  public static void assertClosed(ConnectedRanks ranks, Executor rank0, BooleanSupplier closed)
      throws Exception {
    for (int tag = 0; tag < ENDINGS.size(); tag++) {
      Endpoint a = ranks.endpoint(0, 1, tag);
      Endpoint b = ranks.endpoint(1, 0, tag);
      Deadline deadline = deadline();
      CountDownLatch over = new CountDownLatch(1);
      rank0.execute(() -> await(over));
      CompletableFuture<Connection> toB = a.connect(b.wire(), deadline);
      CountDownLatch release = new CountDownLatch(1);
      Thread ending = end(toB, ENDINGS.get(tag), release);
      over.countDown();
      try {
        CompletableFuture<Connection> toA = b.connect(a.wire(), deadline);
        get(toA.handle((connection, error) -> connection));
        Awaitility.await("nothing of it is open").until(closed::getAsBoolean);
        Awaitility.await("the peer is told").until(() -> hasLeft(toA));
        assertThat(toB).isCompletedExceptionally();
        b.close();
        toA.thenAccept(Connection::close);
      } finally {
        release.countDown();
        ending.join(TimeUnit.SECONDS.toMillis(10));
      }
    }
  }

  /** Ends a future in a thread that stays in this call until the latch is released. */
  private static Thread end(
      CompletableFuture<?> future, Consumer<CompletableFuture<?>> how, CountDownLatch release)
      throws InterruptedException {
    CountDownLatch ended = new CountDownLatch(1);
    // The callback that was added last runs first: before those of the transport.
    future.whenComplete(
        (done, error) -> {
          ended.countDown();
          await(release);
        });
    Thread thread = new Thread(() -> how.accept(future), "ends a connect");
    thread.setDaemon(true);
    thread.start();
    ended.await();
    return thread;
  }

  /** Waits for a latch, which may be blocked as long as the test runs. */
  public static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private static boolean hasLeft(CompletableFuture<Connection> connected) {
    if (connected.isCompletedExceptionally()) {
      return true;
    }
    ConnectionEnd end = (ConnectionEnd) connected.join();
    return end.hasPeerLeft() || end.hasFailed();
  }
}
