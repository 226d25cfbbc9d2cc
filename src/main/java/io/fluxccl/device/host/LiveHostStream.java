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
 * A queue, and a thread that starts with the first work and sleeps while the queue is empty. Any
 * threads may enqueue concurrently. Closing completes the futures on the closing thread.
 */
final class LiveHostStream extends HostStream {
  private static final int MAX_SUPPRESSED = 8;

  private final StreamWorker worker;

  /**
   * Streams for branches of graphs launched here, used by one launch at a time. Guarded by itself.
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
      // Enqueue the milestone before the wait, so that a wait refers only to earlier work.
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

  /** Enqueues an action that runs even if the stream is closed first. */
  void runAfterEnqueuedWork(Runnable action) {
    worker.enqueue(new StreamTask.Afterwards(action));
  }

  /**
   * Creates streams for branches of graphs and starts their threads, until there are {@code count}.
   * Enqueuing a launch can then not fail to start a thread. Only graph branches are enqueued on
   * these streams, so a launch that waits for them waits only for its own work.
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

  /** Returns the stream for a branch of a graph; for branch 0 this stream. */
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

  /** Runs a task. Called by the stream's thread, like all methods below. */
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

  /** Returns whether the failure names a rank, which a {@link DeviceFailure} would not. */
  private static boolean namesRank(Throwable e) {
    return e instanceof FluxCclException known && known.rank() != FluxCclException.NO_RANK;
  }

  private DeviceFailure failureOf(StreamTask task, Throwable e) {
    return new DeviceFailure(0, "KERNEL_FAILED", task + " on stream " + name + " failed: " + e, e);
  }

  /** Records that work was dropped because a stream was closed. */
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
      return; // returned by a stream that was notified of it
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
    // Not earlier: a launch that has started runs to its end, even if it drops its remaining work.
    synchronized (graphBranches) {
      graphBranches.forEach(LiveHostStream::close);
    }
    device().remove(this);
  }
}
