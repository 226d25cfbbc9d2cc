// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.netty.channel.EventLoop;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.Disposable;

/**
 * The operations of one rank that have not ended: each ends by its deadline at the latest. Only on
 * the event loop, but for {@link #submit} and {@link #onLoop}.
 */
final class PendingOperations {
  private static final Logger LOG = LoggerFactory.getLogger(PendingOperations.class);
  private static final int SHOWN_RANKS = 16;

  private final AbstractBootstrap bootstrap;
  private final EventLoop loop;
  private final Set<CompletableFuture<?>> all = new HashSet<>();
  private final Set<CompletableFuture<?>> sends = new HashSet<>();

  PendingOperations(AbstractBootstrap bootstrap) {
    this.bootstrap = bootstrap;
    this.loop = bootstrap.loop;
  }

  /** Begins an operation on the event loop, unless the bootstrap has failed or closed. */
  void submit(CompletableFuture<?> result, Runnable operation) {
    try {
      loop.execute(() -> begin(result, operation));
    } catch (RejectedExecutionException e) {
      String closed = bootstrap.describe() + ": this bootstrap was closed";
      result.completeExceptionally(new Aborted(bootstrap.rank(), closed, e));
    }
  }

  private void begin(CompletableFuture<?> result, Runnable operation) {
    FluxCclException refusal = bootstrap.refusal();
    if (refusal != null) {
      result.completeExceptionally(refusal);
      return;
    }
    try {
      operation.run();
    } catch (RuntimeException | Error e) {
      result.completeExceptionally(FluxCclException.from(e));
    }
  }

  /**
   * Returns a time-out that names the silent rank, or else the ranks for which the operation waits.
   */
  private Timeout late(String operation, List<Integer> peers, Deadline deadline) {
    OptionalInt silent = bootstrap.unresponsiveRank();
    boolean one = peers.size() == 1;
    String awaited = one ? "rank " + peers.get(0) : "ranks " + describe(peers);
    String hint =
        silent.isPresent()
            ? "rank " + silent.getAsInt() + " answers no heartbeat"
            : one ? "is it late, or did it never call?" : "are they late, or did they never call?";
    return Timeout.of(
        silent.orElse(peers.get(0)),
        "%s: %s received nothing from %s within %s ms; %s",
        bootstrap.describe(),
        operation,
        awaited,
        deadline.timeout().toMillis(),
        hint);
  }

  /** Returns ranks for an error: the first ones, and the number of the others. */
  static String describe(List<Integer> ranks) {
    int more = ranks.size() - SHOWN_RANKS;
    return more <= 0 ? ranks.toString() : ranks.subList(0, SHOWN_RANKS) + " and " + more + " more";
  }

  /**
   * Watches an operation until it ends.
   *
   * @param peers returns the ranks for which it waits, for the failure at its deadline
   * @param onEnd called once it has ended, with or without a failure
   */
  void track(
      CompletableFuture<?> operation,
      Deadline deadline,
      String name,
      Supplier<List<Integer>> peers,
      Runnable onEnd) {
    if (operation.isDone()) {
      onEnd.run();
      return;
    }
    all.add(operation);
    Disposable timer =
        deadline.whenPassed(
            loop, () -> operation.completeExceptionally(late(name, peers.get(), deadline)));
    operation.whenComplete(
        (value, thrown) ->
            onLoop(
                () -> {
                  timer.dispose();
                  all.remove(operation);
                  onEnd.run();
                }));
  }

  /** As {@link #track}, for an operation that a closing bootstrap still finishes. */
  void trackSend(
      CompletableFuture<?> operation,
      Deadline deadline,
      String name,
      Supplier<List<Integer>> peers) {
    sends.add(operation);
    track(operation, deadline, name, peers, () -> sends.remove(operation));
  }

  /** Fails all operations but the sends, which a closing bootstrap still finishes. */
  void endAllButSends(FluxCclException reason) {
    // A copy: each takes itself out of the set.
    List.copyOf(all).stream()
        .filter(each -> !sends.contains(each))
        .forEach(each -> each.completeExceptionally(reason));
  }

  void endAll(FluxCclException reason) {
    List.copyOf(all).forEach(each -> each.completeExceptionally(reason));
  }

  /** Runs now when on the event loop, otherwise soon; not at all once the loop has ended. */
  void onLoop(Runnable task) {
    try {
      Frames.onLoop(loop, task);
    } catch (RejectedExecutionException e) {
      LOG.trace("the bootstrap was closed already", e);
    }
  }
}
