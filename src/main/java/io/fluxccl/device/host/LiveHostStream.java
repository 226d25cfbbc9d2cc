package io.fluxccl.device.host;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Map;
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
  private final GraphLanes graphLanes = new GraphLanes(this);
  private final KernelThread singleThread = new KernelThread(0);
  private final Set<CompletableFuture<Void>> unfinished = ConcurrentHashMap.newKeySet();
  private final Map<String, LiveHostStream> branches = new ConcurrentHashMap<>();
  private volatile boolean closed;
  private volatile boolean failsFast;

  /** Written by the stream's thread only. */
  private volatile boolean stopped;

  // All used by the stream's thread only.
  private BlockTeam team;
  private boolean dropped;
  private FluxCclException failure;

  /** Streams that waited for this one and have the failure already. */
  private final Set<LiveHostStream> told = Collections.newSetFromMap(new IdentityHashMap<>());

  LiveHostStream(HostDevice device, String name) {
    super(device, name);
    this.worker = new StreamWorker(this, name);
  }

  @Override
  void enqueue(StreamTask task) {
    refuseWhenClosed();
    worker.enqueue(task);
  }

  private void refuseWhenClosed() {
    if (closed) {
      throw new InvalidUsage("stream " + name() + " is closed");
    }
  }

  @Override
  public LiveHostStream waitFor(DeviceStream other) {
    refuseWhenClosed();
    if (!(other instanceof LiveHostStream)) {
      throw cannotWaitFor(
          other,
          other instanceof HostStream ? "that one records" : "that one is no stream of the host");
    }
    LiveHostStream before = (LiveHostStream) other;
    if (before.closed) {
      throw cannotWaitFor(other, "that one is closed");
    }
    if (before != this && before.worker.hasStarted()) {
      // First the point, then the wait: so waits only ever point to what was there before them.
      Milestone milestone = new Milestone(this);
      before.worker.enqueue(milestone);
      enqueue(new StreamTask.WaitFor(milestone, before.name()));
    }
    return this;
  }

  @Override
  public LiveHostStream branch(String name) {
    LiveHostStream branch = branches.get(name);
    if (branch == null || branch.closed) {
      branch = branches.compute(name, (key, old) -> old == null || old.closed ? make(key) : old);
    }
    if (closed) {
      branch.close();
      refuseWhenClosed();
    }
    return branch;
  }

  private LiveHostStream make(String name) {
    refuseWhenClosed();
    LiveHostStream branch = device().newStream(name() + "-" + name);
    branch.failsFast = failsFast;
    return branch;
  }

  @Override
  public LiveHostStream failFast() {
    failsFast = true;
    return this;
  }

  boolean failsFast() {
    return failsFast;
  }

  /** Whether it has failed and does no more work. */
  boolean hasStopped() {
    return stopped;
  }

  @Override
  public LiveHostStream launch(DeviceGraph graph) {
    if (!(graph instanceof HostGraph) || graph.device() != device()) {
      throw new InvalidUsage(graph + " is not of this stream's device, " + device());
    }
    refuseWhenClosed();
    ((HostGraph) graph).enqueueOn(this);
    return this;
  }

  @Override
  public CompletableFuture<Void> completion() {
    CompletableFuture<Void> future = new CompletableFuture<>();
    if (closed) {
      future.completeExceptionally(closedFailure());
      return future;
    }
    unfinished.add(future);
    worker.enqueue(new StreamTask.Completion(future));
    if (closed) {
      failUnfinished(); // close() may have looked before this one was there
    }
    return future;
  }

  /** Whether everything enqueued so far is done. */
  boolean isIdle() {
    return worker.isIdle();
  }

  /** Enqueues something that is done even when the stream is closed before. */
  void runAfterEnqueuedWork(Runnable action) {
    worker.enqueue(new StreamTask.Afterwards(action));
  }

  /** The streams that branches of graphs launched here run on. */
  GraphLanes graphLanes() {
    return graphLanes;
  }

  /** Has a thread from now on, so that enqueuing can't fail for want of one. */
  void start() {
    worker.start();
  }

  boolean isClosed() {
    return closed;
  }

  @Override
  public void close() {
    closed = true;
    worker.wakeToEnd();
    failUnfinished();
    branches.values().forEach(LiveHostStream::close);
  }

  private void failUnfinished() {
    for (CompletableFuture<Void> future : unfinished) {
      if (unfinished.remove(future)) {
        future.completeExceptionally(closedFailure());
      }
    }
  }

  private Aborted closedFailure() {
    return new Aborted(FluxCclException.NO_RANK, "stream " + name() + " was closed");
  }

  /** Called by the stream's thread, as all below. */
  void run(StreamTask task) {
    if (closed && !task.survivesClose()) {
      drop(task);
      return;
    }
    if (stopped && task.isWork() && !task.survivesClose()) {
      return;
    }
    try {
      task.run(this);
    } catch (Throwable e) {
      note(
          new DeviceFailure(
              0,
              "KERNEL_FAILED",
              task.description() + " on stream " + name() + " failed: " + e,
              e));
    }
  }

  void drop(StreamTask task) {
    dropped |= task.isWork();
  }

  /** Keeps a failure for the next completion. */
  void note(FluxCclException next) {
    stopped = failsFast;
    if (failure == next) {
      return; // it has been here, and comes back from a stream that was told
    }
    if (failure == null) {
      failure = next;
    } else if (failure.getSuppressed().length < MAX_SUPPRESSED) {
      failure.addSuppressed(next);
    }
    told.clear();
  }

  /** Why a stream that waits for this one can't rely on the work so far; null if it can. */
  FluxCclException failureFor(LiveHostStream waiting) {
    if (dropped) {
      return closedFailure();
    }
    return failure != null && told.add(waiting) ? failure : null;
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
    told.clear();
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

  /** The last that the stream's thread does. */
  void ended() {
    releaseTeam();
    graphLanes.close();
    device().remove(this);
  }
}
