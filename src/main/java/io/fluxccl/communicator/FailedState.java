// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.OpenFiles;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.AbortFlag;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Fails a communicator once, for the first reason: sets the abort flag that kernels watch, notifies
 * the other ranks, fails set-ups and operations in flight. Thread-safe.
 */
final class FailedState {
  /** The time in which a rank's own reason, or the news of its death, may arrive. */
  private static final long NEWS_MILLIS = 1000;

  private final Lifecycle lifecycle;
  private final Bootstrap bootstrap;
  private final AbortFlag abortFlag;
  private final SetupQueue setups;
  private final Map<CompletableFuture<?>, Boolean> inFlight = new ConcurrentHashMap<>();

  /** The first transport failure that waits, or has waited, for the bootstrap's verdict. */
  private final AtomicReference<FluxCclException> suspicion = new AtomicReference<>();

  private final CompletableFuture<Void> closed = NonblockingFuture.create();

  /** The reason with which closing fails what is pending; null while it is not closed. */
  private volatile Aborted closeReason;

  FailedState(Lifecycle lifecycle, Bootstrap bootstrap, AbortFlag abortFlag, SetupQueue setups) {
    this.lifecycle = lifecycle;
    this.bootstrap = bootstrap;
    this.abortFlag = abortFlag;
    this.setups = setups;
  }

  /** {@link Communicator#abort}. */
  void abort(FluxCclException failure) {
    // A rank that is out of file descriptors names itself, not the peer for which it needed one.
    FluxCclException reason =
        OpenFiles.ranOut(failure)
            ? failure.withRank(bootstrap.rank(), failure.getMessage())
            : failure;
    if (reason instanceof TransportFailure && blamesAnother(reason)) {
      suspicion.compareAndSet(null, reason);
      verdict(reason).thenAccept(this::abortNow);
    } else {
      abortNow(reason);
    }
  }

  /** {@link Communicator#verdict}. */
  CompletableFuture<FluxCclException> verdict(FluxCclException reason) {
    if (!blamesAnother(reason)) {
      return CompletableFuture.completedFuture(reason);
    }
    return tie(new CompletableFuture<Void>())
        .completeOnTimeout(null, NEWS_MILLIS, TimeUnit.MILLISECONDS)
        .handleAsync(
            (nothing, told) -> told == null ? reason : FluxCclException.from(told),
            BlockingTasks.EXECUTOR);
  }

  private boolean blamesAnother(FluxCclException reason) {
    return switch (reason.code()) {
      case TRANSPORT_FAILURE, REMOTE_FAILURE, ABORTED ->
          reason.rank() != FluxCclException.NO_RANK && reason.rank() != bootstrap.rank();
      default -> false;
    };
  }

  private void abortNow(FluxCclException reason) {
    FluxCclException named = reason.inJob(bootstrap.name());
    if (begin(named)) {
      // First, because a continuation of what is announced may close the bootstrap: the other ranks
      // would take that for leaving in good order.
      bootstrap.abort(named.attributedTo(bootstrap.rank()));
      BlockingTasks.EXECUTOR.execute(() -> announce(named));
    }
  }

  /** Fails this rank's communicator: the bootstrap has failed, or this rank aborts. */
  void enter(FluxCclException cause) {
    FluxCclException reason = cause.inJob(bootstrap.name());
    if (begin(reason)) {
      // Continuations of users must block neither the bootstrap's thread, which answers heartbeats,
      // nor a proxy's.
      BlockingTasks.EXECUTOR.execute(() -> announce(reason));
    }
  }

  /**
   * Fails it because it is closed. A transport failure that still waits for the bootstrap's verdict
   * is sent first, or the other ranks would take this for leaving in good order.
   */
  void close() {
    int rank = bootstrap.rank();
    closeReason = Aborted.of(rank, "the communicator of rank %s was closed", rank);
    try {
      Optional.ofNullable(suspicion.get()).ifPresent(this::abortNow);
      if (begin(closeReason)) {
        announce(closeReason);
      }
    } finally {
      closed.complete(null);
    }
  }

  /** {@link Communicator#isClosed}. */
  boolean isClosed() {
    return closeReason != null && lifecycle.failure() == closeReason;
  }

  /** {@link Communicator#closed}. */
  CompletableFuture<Void> closed() {
    return closed.copy();
  }

  private boolean begin(FluxCclException reason) {
    if (!lifecycle.fail(reason)) {
      return false;
    }
    abortFlag.set();
    return true;
  }

  private void announce(FluxCclException reason) {
    lifecycle.announceFailure();
    inFlight.keySet().forEach(operation -> operation.completeExceptionally(reason));
    setups.fail(reason);
  }

  /** {@link Communicator#failed}. Its continuations may wait for what fails after it. */
  CompletableFuture<FluxCclException> failed() {
    CompletableFuture<FluxCclException> failed = lifecycle.failed();
    return failed.isDone()
        ? failed
        : failed.thenApplyAsync(reason -> reason, BlockingTasks.EXECUTOR);
  }

  /** {@link Communicator#inFlight}. */
  <T> CompletableFuture<T> tie(CompletableFuture<T> operation) {
    inFlight.put(operation, true);
    operation.whenComplete((done, failure) -> inFlight.remove(operation));
    FluxCclException reason = lifecycle.failure();
    if (reason != null) {
      operation.completeExceptionally(reason);
    }
    return operation;
  }
}
