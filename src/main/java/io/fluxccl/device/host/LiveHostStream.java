// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.StreamClock;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A queue, and a thread that starts with the first work and sleeps when there is none. Any threads
 * may enqueue, also at the same time; closing completes the futures on the thread that closes.
 */
final class LiveHostStream extends HostStream {
  private static final int MAX_SUPPRESSED = 8;

  private final StreamWorker worker;

  /**
   * Streams that branches of graphs launched here run on, one launch at a time. Guarded by itself.
   */
  private final List<LiveHostStream> graphBranches = new ArrayList<>();

  private final KernelThread singleThread = new KernelThread(0);
  private final Set<CompletableFuture<Void>> unfinished = ConcurrentHashMap.newKeySet();
  private volatile boolean failsFast;

  /** Written by the stream's thread only. */
  private volatile boolean stopped;

  // All used by the stream's thread only.
  private BlockTeam team;
  private boolean dropped;
  private FluxCclException failure;

  /** Streams that waited for this one and were notified of the failure. */
  private final Set<LiveHostStream> notified = Collections.newSetFromMap(new IdentityHashMap<>());

  LiveHostStream(HostDevice device, String name) {
    super(device, name, null);
    this.worker = new StreamWorker(this, name);
  }

  @Override
  void enqueue(StreamTask task) {
    lifecycle.checkOpen();
    worker.enqueue(task);
  }

  @Override
  protected HostStream enqueueWait(HostStream other) {
    LiveHostStream before = (LiveHostStream) other;
    if (before.worker.hasStarted()) {
      // The milestone before the wait: so waits only ever point to what was there before them.
      Milestone milestone = new Milestone(this);
      before.worker.enqueue(milestone);
      enqueue(new StreamTask.WaitFor(milestone));
    }
    return this;
  }

  @Override
  protected HostStream newBranch(String branchName) {
    LiveHostStream branch = device().newStream(branchName);
    branch.failsFast = failsFast;
    return branch;
  }

  @Override
  public LiveHostStream failFast() {
    failsFast = true;
    return this;
  }

  /** Returns whether it has failed and does no more work. */
  boolean hasStopped() {
    return stopped;
  }

  @Override
  protected HostStream enqueueGraph(DeviceGraph graph) {
    ((HostGraph) graph).enqueueOn(this);
    return this;
  }

  @Override
  public Optional<StreamClock> clock(int points) {
    return Optional.of(new HostStreamClock(this, points));
  }

  @Override
  public CompletableFuture<Void> completion() {
    CompletableFuture<Void> future = NonblockingFuture.create();
    if (isClosed()) {
      future.completeExceptionally(closedFailure());
      return future;
    }
    unfinished.add(future);
    worker.enqueue(new StreamTask.Completion(future));
    if (isClosed()) {
      failUnfinished(); // close() may have missed this one
    }
    return future;
  }

  /** Returns whether everything enqueued so far is done. */
  boolean isIdle() {
    return worker.isIdle();
  }

  /** Enqueues something that is done even when the stream is closed before. */
  void runAfterEnqueuedWork(Runnable action) {
    worker.enqueue(new StreamTask.Afterwards(action));
  }

  /**
   * Makes sure that there are so many streams for branches of graphs, with threads, so that
   * enqueuing can't fail for want of one. Nothing else is ever enqueued on them, so that a launch
   * that waits for them waits for itself only.
   */
  void prepareGraphBranches(int count) {
    synchronized (graphBranches) {
      lifecycle.checkOpen();
      while (graphBranches.size() < count) {
        LiveHostStream branch =
            new LiveHostStream(device(), name + "-graph" + (graphBranches.size() + 1));
        branch.failsFast = failsFast;
        branch.worker.start();
        graphBranches.add(branch);
      }
    }
  }

  /** Returns the stream for a graph's branch of that number, which for 0 is this one. */
  LiveHostStream graphBranch(int number) {
    synchronized (graphBranches) {
      return number == 0 ? this : graphBranches.get(number - 1);
    }
  }

  @Override
  public void close() {
    if (lifecycle.beginClose()) {
      worker.wakeToEnd();
      failUnfinished();
      closeBranches();
    }
  }

  private void failUnfinished() {
    for (CompletableFuture<Void> future : unfinished) {
      if (unfinished.remove(future)) {
        future.completeExceptionally(closedFailure());
      }
    }
  }

  /** Runs a task. Called by the stream's thread, as all below. */
  void run(StreamTask task) {
    if (isClosed() && !task.survivesClose()) {
      dropped |= task.isWork();
      return;
    }
    if (stopped && task.isWork() && !task.survivesClose()) {
      return;
    }
    try {
      task.run(this);
    } catch (Throwable e) {
      note(namesRank(e) ? (FluxCclException) e : failureOf(task, e));
    }
  }

  /** Returns whether another rank is to blame, which would get lost in a failure of the device. */
  private static boolean namesRank(Throwable e) {
    return e instanceof FluxCclException known && known.rank() != FluxCclException.NO_RANK;
  }

  private DeviceFailure failureOf(StreamTask task, Throwable e) {
    return new DeviceFailure(0, "KERNEL_FAILED", task + " on stream " + name + " failed: " + e, e);
  }

  /** Notes that work was not done because a stream was closed. */
  void noteDropped() {
    dropped = true;
  }

  /** Keeps the failure of work that this stream waited for, if there is one. */
  void noteFailureOf(Milestone passed) {
    if (passed.failure() != null) {
      note(passed.failure());
    }
  }

  /** Keeps a failure for the next completion. */
  private void note(FluxCclException next) {
    stopped = failsFast;
    if (failure == next) {
      return; // it comes back from a stream that was notified of it
    }
    if (failure == null) {
      failure = next;
    } else if (failure.getSuppressed().length < MAX_SUPPRESSED) {
      failure.addSuppressed(next);
    }
    notified.clear();
  }

  /** Returns why a stream that waits for this one can't rely on its work so far, or null. */
  FluxCclException failureFor(LiveHostStream waiting) {
    if (dropped) {
      return closedFailure();
    }
    return failure != null && notified.add(waiting) ? failure : null;
  }

  void complete(CompletableFuture<Void> future) {
    unfinished.remove(future);
    FluxCclException noted = failure;
    if (!stopped) {
      forgetFailure();
    }
    if (noted == null) {
      future.complete(null);
    } else {
      future.completeExceptionally(noted);
    }
  }

  void forgetFailure() {
    failure = null;
    dropped = false;
    stopped = false;
    notified.clear();
  }

  KernelThread singleThread() {
    return singleThread;
  }

  BlockTeam team(int blockDim) {
    if (team == null || team.blockDim() != blockDim) {
      releaseTeam();
      team = new BlockTeam(device().blockWorkers(), blockDim);
    }
    return team;
  }

  void releaseTeam() {
    if (team != null) {
      team.release();
      team = null;
    }
  }

  /** Called last by the stream's thread. */
  void ended() {
    releaseTeam();
    // Not before: a launch that has begun gets to its end, even though it drops what is left.
    synchronized (graphBranches) {
      graphBranches.forEach(LiveHostStream::close);
    }
    device().remove(this);
  }
}
