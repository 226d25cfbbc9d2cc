// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;

/** What a group owns, and how it leaves its job and closes that. Thread-safe. */
final class GroupClosing {
  static final Duration LEAVE_LIMIT = Duration.ofSeconds(5);

  private final RankGroup group;

  /** Owns the device, the communicator and the collectives. */
  private final Lifecycle lifecycle = new Lifecycle("the rank group");

  private final CompletableFuture<Void> closed = NonblockingFuture.create();
  private final CompletableFuture<Void> parentCloses = new CompletableFuture<>();
  private volatile boolean ownsDevice;

  private final Duration stepLimit;

  /**
   * @param stepLimit how long an operation may take
   */
  GroupClosing(RankGroup group, Duration stepLimit) {
    this.group = group;
    this.stepLimit = stepLimit;
  }

  <T extends AutoCloseable> T own(T child) {
    return lifecycle.own(child);
  }

  /** Sets whether the device is closed at the end. First called before anything else is owned. */
  void ownDevice(boolean owned) {
    ownsDevice = owned;
    lifecycle.own(
        () -> {
          if (ownsDevice) {
            group.device().close();
          }
        });
  }

  /** Closes the device at the end, too. */
  void takeDevice() {
    ownsDevice = true;
  }

  boolean hasBegun() {
    return lifecycle.isClosed();
  }

  /** Returns a new future that completes when all is closed. */
  CompletableFuture<Void> closed() {
    return closed.copy();
  }

  /** Waits no longer for the other ranks: the group of which this is a sub-group closes. */
  void parentCloses() {
    parentCloses.complete(null);
  }

  /** {@link RankGroup#closeAsync}. */
  void begin() {
    if (lifecycle.beginClose()) {
      leave();
    }
  }

  /**
   * Begins to close the group, but leaves its device to the caller.
   *
   * @return false if it is closed already, and its device with it
   */
  boolean beginWithoutDevice() {
    boolean first = lifecycle.beginClose();
    if (first) {
      ownsDevice = false;
      leave();
    }
    return first;
  }

  private void leave() {
    drain()
        .handle((done, failure) -> null)
        .thenCompose(done -> awaitOthers())
        .handle((done, failure) -> null)
        .thenCompose(done -> group.subGroups.close())
        // Closing waits for threads and drivers, and the bootstrap's thread must not.
        .thenComposeAsync(done -> closeNow(), BlockingTasks.EXECUTOR)
        .whenComplete((done, failure) -> Closing.complete(closed, failure));
  }

  /**
   * Waits for what is enqueued, as runs are whose subscribers have cancelled: closing would end
   * them. Each has a time limit; this one is for what has none.
   */
  private CompletableFuture<?> drain() {
    if (group.communicator().failure() != null) {
      return CompletableFuture.completedFuture(null);
    }
    CompletableFuture<Void> idle = new CompletableFuture<>();
    group.device().whenEnqueuedWorkIsDone(() -> idle.complete(null));
    return group
        .communicator()
        .inFlight(idle)
        .completeOnTimeout(null, Deadline.after(stepLimit).remainingNanos(), TimeUnit.NANOSECONDS);
  }

  private CompletableFuture<?> awaitOthers() {
    if (group.communicator().failure() != null) {
      return CompletableFuture.completedFuture(null);
    }
    Deadline deadline = Deadline.after(LEAVE_LIMIT);
    return CompletableFuture.anyOf(
            group.communicator().inFlight(group.bootstrap().barrier(deadline)), parentCloses)
        .thenRun(() -> group.communicator().endTogether());
  }

  /** Closes all it owns, then the bootstrap. Throws nothing: a failure is the result's. */
  CompletableFuture<Void> closeNow() {
    CompletableFuture<Void> own = new CompletableFuture<>();
    try {
      lifecycle.closeChildren();
      own.complete(null);
    } catch (Throwable e) {
      own.completeExceptionally(FluxCclException.from(e));
    }
    return CompletableFuture.allOf(group.bootstrap().closeAsync(), own);
  }

  /** Closes what a group owns that could not be created. */
  void closeWhatItHas() {
    CloseHelper.quietClose(lifecycle);
  }
}
