// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.agrona.CloseHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Mono;

/** Leaves the job of a group, and then closes what the group owns. Thread-safe. */
final class GroupClosing {
  private static final Logger LOG = LoggerFactory.getLogger(GroupClosing.class);
  private static final Duration LEAVE_LIMIT = Duration.ofSeconds(5);
  private static final long CLOSE_SECONDS = 2 * LEAVE_LIMIT.toSeconds();

  private final RankGroup group;

  /** Owns the device, the communicator and the collectives. */
  private final Lifecycle lifecycle = new Lifecycle("the rank group");

  private final CompletableFuture<Void> closed = NonblockingFuture.create();
  private final CompletableFuture<Void> parentCloses = new CompletableFuture<>();

  /** The ranks of this group that were notified that this rank leaves. */
  private final Set<Integer> notified = ConcurrentHashMap.newKeySet();

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

  /** Returns whether the job has failed because other ranks needed this one, which closes. */
  boolean hasLeft(FluxCclException failure) {
    return hasBegun() && failure instanceof RemoteFailure && failure.rank() == group.rank();
  }

  /** Returns a new future that completes when all is closed. */
  CompletableFuture<Void> closed() {
    return closed.copy();
  }

  /** Stops waiting for the other ranks, because the parent group closes. */
  void parentCloses(RankGroup parent) {
    if (parent.communicator().endsTogether()) {
      group.communicator().endTogether();
    }
    parentCloses.complete(null);
  }

  /** {@link RankGroup#run(GroupBody)}. */
  <E extends Exception> void run(GroupBody<E> body) throws E {
    Closing.requireBlockingThread(toString());
    try (group) {
      try {
        body.run(group);
      } catch (Throwable e) {
        abort(e);
        throw e;
      }
    }
  }

  /** {@link RankGroup#run(Mono)}. */
  <T> Mono<T> run(Mono<T> body) {
    return Mono.usingWhen(
        Mono.just(this),
        self -> body,
        GroupClosing::close,
        (self, failure) -> {
          abort(failure);
          return self.close();
        },
        GroupClosing::close);
  }

  private Mono<Void> close() {
    return Mono.fromFuture(group.closeAsync());
  }

  private void abort(Throwable failure) {
    int rank = group.rank();
    group
        .communicator()
        .abort(
            failure instanceof FluxCclException known
                ? known
                : new Aborted(rank, "rank " + rank + " failed in run: " + failure, failure));
  }

  /** {@link RankGroup#close}. */
  void closeAndWait() {
    if (!closed.isDone()) {
      Closing.requireBlockingThread(toString());
    }
    CompletableFuture<Void> own = group.closeAsync();
    String late = "{}: closing takes over {} s and continues";
    Closing.await(
        group.localRanks == null ? own : group.localRanks.closed(),
        CLOSE_SECONDS,
        () -> LOG.warn(late, this, CLOSE_SECONDS));
  }

  /** {@link RankGroup#closeAll}. */
  static void closeAll(Collection<RankGroup> groups) {
    String what = groups.size() + " groups";
    Closing.requireBlockingThread(what);
    String late = "{}: closing takes over {} s and continues";
    Closing.await(
        ChildGroups.close(groups), CLOSE_SECONDS, () -> LOG.warn(late, what, CLOSE_SECONDS));
  }

  @Override
  public String toString() {
    return "rank " + group.rank() + " of " + group.nRanks();
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
   * Waits for enqueued work, including runs whose subscribers have cancelled: closing would abort
   * them. Each run has a time limit; {@code stepLimit} limits other work.
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
    CompletableFuture<Void> all =
        group
            .bootstrap()
            .barrier(Deadline.after(LEAVE_LIMIT), this::notifyLate)
            .thenRun(() -> group.communicator().endTogether());
    CompletableFuture<OptionalInt> silent =
        group.bootstrap().silence().filter(OptionalInt::isPresent).next().toFuture();
    return CompletableFuture.anyOf(group.communicator().inFlight(all), silent, parentCloses)
        .whenComplete((done, failure) -> silent.cancel(false));
  }

  /** Notifies ranks that do not close yet: they may wait for calls that this rank won't make. */
  private void notifyLate(List<Integer> ranks) {
    List<Integer> news = ranks.stream().filter(notified::add).toList();
    group.communicator().leaving(news);
    group.subGroups.notifyLate(news);
  }

  /** Notifies those ranks of this sub-group that are among some ranks of the job. */
  void notifyLateOfJob(Collection<Integer> jobRanks) {
    List<Integer> own = group.bootstrap().jobRanks();
    notifyLate(
        IntStream.range(0, own.size()).filter(i -> jobRanks.contains(own.get(i))).boxed().toList());
  }

  /** Closes all it owns, then the bootstrap. Throws nothing: after a failure the result fails. */
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

  /** Closes the resources of a group that could not be created. */
  void closeWhatItHas() {
    CloseHelper.quietClose(lifecycle);
  }
}
