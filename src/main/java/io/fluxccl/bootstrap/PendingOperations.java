package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.netty.channel.EventLoop;
import io.netty.util.concurrent.ScheduledFuture;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The operations of one rank that have not ended: each does so by its deadline at the latest, or
 * when all are ended. Only on the event loop, but for {@link #onLoop}.
 */
final class PendingOperations {
  private static final Logger LOG = LoggerFactory.getLogger(PendingOperations.class);

  private final EventLoop loop;
  private final Set<CompletableFuture<?>> sends = identitySet();
  private final Set<CompletableFuture<?>> others = identitySet();

  PendingOperations(EventLoop loop) {
    this.loop = loop;
  }

  private static Set<CompletableFuture<?>> identitySet() {
    return Collections.newSetFromMap(new IdentityHashMap<>());
  }

  /**
   * Watches an operation until it ends.
   *
   * @param late what it fails with when its time is up
   * @param onEnd called once it has ended, however
   */
  void track(
      CompletableFuture<?> operation,
      Deadline deadline,
      Supplier<FluxCclException> late,
      Runnable onEnd) {
    track(others, operation, deadline, late, onEnd);
  }

  /** As {@link #track}, for what a closing bootstrap still finishes. */
  void trackSend(
      CompletableFuture<?> operation, Deadline deadline, Supplier<FluxCclException> late) {
    track(sends, operation, deadline, late, () -> {});
  }

  private void track(
      Set<CompletableFuture<?>> set,
      CompletableFuture<?> operation,
      Deadline deadline,
      Supplier<FluxCclException> late,
      Runnable onEnd) {
    if (operation.isDone()) {
      onEnd.run();
      return;
    }
    set.add(operation);
    ScheduledFuture<?> timer =
        loop.schedule(
            () -> operation.completeExceptionally(late.get()),
            deadline.remainingNanos(),
            TimeUnit.NANOSECONDS);
    operation.whenComplete(
        (value, thrown) ->
            onLoop(
                () -> {
                  timer.cancel(false);
                  set.remove(operation);
                  onEnd.run();
                }));
  }

  void endAll(FluxCclException reason) {
    end(sends, reason);
    end(others, reason);
  }

  void endAllButSends(FluxCclException reason) {
    end(others, reason);
  }

  private static void end(Set<CompletableFuture<?>> set, FluxCclException reason) {
    // A copy: each takes itself out of the set.
    List<CompletableFuture<?>> all = new ArrayList<>(set);
    all.forEach(each -> each.completeExceptionally(reason));
  }

  /** Runs now when on the event loop, otherwise soon; not at all once the loop has ended. */
  void onLoop(Runnable task) {
    if (loop.inEventLoop()) {
      task.run();
      return;
    }
    try {
      loop.execute(task);
    } catch (RejectedExecutionException e) {
      LOG.trace("the bootstrap was closed already", e);
    }
  }
}
