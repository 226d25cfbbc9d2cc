// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.concurrent.NonblockingThread;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.AbstractStream;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.Recording;
import io.fluxccl.device.StreamClock;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.ManyToOneConcurrentLinkedQueue;

/** A stream of the host device. It runs its work on its own thread, or records it for a graph. */
@Experimental
public abstract class HostStream extends AbstractStream<HostDevice, HostStream> {
  HostStream(HostDevice device, String name, Recording recording) {
    super(device, name, recording);
  }

  /** Enqueues a task. Refuses it if the stream is closed or its recording has ended. */
  abstract void enqueue(Task task);

  @Override
  protected final boolean canUse(DeviceBuffer buffer) {
    return buffer instanceof HostBuffer;
  }

  @Override
  protected final HostStream enqueueCopy(long target, long source, long size) {
    enqueue(new Copy(target, source, size));
    return this;
  }

  @Override
  protected final HostStream enqueueWrite(long target, long value) {
    enqueue(new WriteValue(target, value));
    return this;
  }

  /**
   * {@inheritDoc}
   *
   * <p>{@link KernelThread#abortAddress()} returns the address of the {@link AbortFlag} among the
   * arguments.
   */
  @Override
  public HostStream launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
    if (!(kernel instanceof HostKernel launched)) {
      throw InvalidUsage.of(
          "kernel %s is for %s, this is the host device; make it with HostKernel.of",
          kernel.name(), kernel.kind());
    }
    if (gridDim < 1 || blockDim < 1 || blockDim > HostKernel.MAX_BLOCK_DIM) {
      throw InvalidUsage.of(
          "gridDim=%s blockDim=%s of kernel %s; a grid has 1 block or more, a block 1"
              + " to %s threads",
          gridDim, blockDim, kernel.name(), HostKernel.MAX_BLOCK_DIM);
    }
    keep(kernel.name(), args);
    enqueue(new Launch(launched, gridDim, blockDim, args, abortAddress(args)));
    return this;
  }

  private static long abortAddress(KernelArgs args) {
    for (int i = 0; i < args.count(); i++) {
      Object value = args.get(i, Object.class);
      if (value instanceof AbortFlag flag) {
        return flag.deviceAddress();
      }
    }
    return 0;
  }

  @Override
  public String toString() {
    return "HostStream(" + name + ")";
  }

  /**
   * One task of a stream. Messages name it by its {@code toString()}. Other streams that wait for
   * this one are notified if it was dropped, unless it is a {@link Notice}.
   */
  interface Task {
    /** Runs it; called by the stream's thread. */
    void run(Live stream) throws Throwable;
  }

  /** A task on whose effect no other stream relies. */
  interface Notice extends Task {}

  /** A task that runs even if the stream was closed first, or has failed and does no more work. */
  interface Always extends Task {}

  private record Launch(
      HostKernel kernel, int gridDim, int blockDim, KernelArgs args, long abortAddress)
      implements Task {
    @Override
    public void run(Live stream) throws Throwable {
      if (blockDim > 1) {
        stream.team(blockDim).run(kernel, args, gridDim, abortAddress);
        return;
      }
      KernelThread thread = stream.singleThread;
      thread.begin(gridDim, 1, abortAddress, null);
      HostKernel.Body body = kernel.body();
      for (int block = 0; block < gridDim; block++) {
        thread.block(block);
        body.run(thread, args);
      }
    }

    @Override
    public String toString() {
      return "kernel " + kernel.name() + " <<<" + gridDim + ", " + blockDim + ">>>";
    }
  }

  private record Copy(long target, long source, long size) implements Task {
    @Override
    public void run(Live stream) {
      HostMemory.copy(target, source, size);
    }
  }

  private record WriteValue(long address, long value) implements Task {
    @Override
    public void run(Live stream) {
      // Pairs with the acquire of the threads that poll the word: they see all work before it.
      HostMemory.putLongRelease(address, value);
    }
  }

  private record Afterwards(Runnable action) implements Always {
    @Override
    public void run(Live stream) {
      action.run();
    }
  }

  /** The clock of the thread that runs a stream's tasks. */
  private record Clock(Live stream, Mark[] marks) implements StreamClock {
    @Override
    public void mark(int point) {
      if (marks[point] == null) {
        marks[point] = new Mark();
      }
      stream.enqueue(marks[point]);
    }

    @Override
    public boolean read(int from, int to, long seenNs, long[] times) {
      times[0] = marks[from].atNs;
      times[1] = marks[to].atNs;
      return true;
    }

    @Override
    public void close() {
      // there is nothing to free
    }
  }

  private static final class Mark implements Notice {
    /** Written by the stream's thread, and read after a completion. */
    private long atNs;

    @Override
    public void run(Live stream) {
      atNs = System.nanoTime();
    }
  }

  /**
   * A point in a stream's work that one other stream waits for. Used once. A closed stream drops
   * its work, but passes the milestone so that the waiting stream continues.
   */
  static final class Milestone implements Always {
    private static final int YIELDS_BEFORE_PARKING = 100;

    private final Live waiting;
    private volatile Thread parked;

    /** Published by {@link #passed}. */
    private FluxCclException failure;

    private volatile boolean passed;
    private volatile Milestone next;

    /**
     * A point that is not passed yet.
     *
     * @param waiting the stream that is to wait for it
     */
    Milestone(Live waiting) {
      this.waiting = waiting;
    }

    @Override
    public void run(Live stream) {
      pass(stream.failureFor(waiting));
    }

    /**
     * Marks the point as passed, so that the waiting stream continues. Any thread.
     *
     * @param because the reason why the earlier work is not reliable, or null
     */
    void pass(FluxCclException because) {
      failure = because;
      // A full fence between this store and the loads of parked and next. park() and passOn() store
      // these first and then load passed, so one of the two sees the other.
      passed = true;
      Thread thread = parked;
      if (thread != null) {
        LockSupport.unpark(thread);
      }
      Milestone then = next;
      if (then != null) {
        then.pass(null);
      }
    }

    /** Passes another milestone together with this one. */
    void passOn(Milestone then) {
      next = then;
      if (passed) { // pass() may have missed next; passing twice does no harm
        then.pass(null);
      }
    }

    /**
     * Waits on a stream's thread. The other stream may be waiting for a peer, so this polls as long
     * as {@link SpinPolicy} permits a kernel to poll, and then sleeps.
     *
     * @param stream the stream whose thread waits
     * @param evenWhenClosed whether to continue the wait if that stream is closed
     * @return whether it was passed
     */
    boolean await(Live stream, boolean evenWhenClosed) {
      int polls = 0;
      while (!passed) {
        if (stream.isClosed() && !evenWhenClosed) {
          return false;
        }
        int allowed = SpinPolicy.pollsBeforeYield();
        if (polls >= allowed + YIELDS_BEFORE_PARKING) {
          park(stream, evenWhenClosed);
        } else if (polls++ < allowed) {
          Thread.onSpinWait();
        } else {
          Thread.yield();
        }
      }
      return true;
    }

    private void park(Live stream, boolean evenWhenClosed) {
      stream.prepareToPark();
      parked = Thread.currentThread();
      if (!passed && (evenWhenClosed || !stream.isClosed())) {
        LockSupport.park(this); // closing the stream unparks its thread
      }
      SpinPolicy.enter();
    }
  }

  /**
   * A stream that runs its work: a queue, and a thread that starts with the first work. If the
   * queue is empty, the thread polls briefly, as {@link SpinPolicy} permits, and then parks. Any
   * threads may enqueue concurrently. Closing completes the futures on the closing thread.
   *
   * <p>Not an {@link io.fluxccl.concurrent.AgentThread}: each launch waits for this loop. It
   * therefore idles by the spin policy of kernels instead of a backoff, never sleeps for a time,
   * and returns its leased block threads before it parks.
   */
  static final class Live extends HostStream {
    private static final int MAX_SUPPRESSED = 8;
    private static final int YIELDS_BEFORE_PARKING = 4;
    private static final int MAX_IDLE_POLLS = 500;

    private final ManyToOneConcurrentLinkedQueue<Task> queue =
        new ManyToOneConcurrentLinkedQueue<>();

    /**
     * Incremented before a task is added to the queue, so that an idle stream has no unseen task.
     */
    private final AtomicLong enqueued = new AtomicLong();

    /** Written by the thread that takes from the queue. */
    private volatile long done;

    private volatile boolean parked;
    private volatile boolean ended;
    private volatile Thread thread;

    /**
     * Streams for branches of graphs launched here, used by one launch at a time. Guarded by
     * itself.
     */
    private final List<Live> graphBranches = new ArrayList<>();

    private final Set<CompletableFuture<Void>> unfinished = ConcurrentHashMap.newKeySet();
    private volatile boolean failsFast;

    /** Whether it has failed and does no more work. Written by the stream's thread only. */
    volatile boolean stopped;

    // All used by the stream's thread only.
    private final KernelThread singleThread = new KernelThread(0);
    private BlockWorkers.Team team;

    /** Whether work was dropped because a stream was closed. */
    boolean dropped;

    private FluxCclException failure;

    /** Streams that waited for this one and were notified of the failure. */
    private final Set<Live> notified = Collections.newSetFromMap(new IdentityHashMap<>());

    Live(HostDevice device, String name) {
      super(device, name, null);
    }

    @Override
    void enqueue(Task task) {
      lifecycle.checkOpen();
      offer(task);
    }

    private void offer(Task task) {
      if (thread == null) {
        start();
      }
      // A full fence between this count and the load of parked. The thread stores parked and then
      // loads the count, so one of the two sees the other.
      enqueued.getAndIncrement();
      queue.offer(task);
      if (parked) {
        LockSupport.unpark(thread);
      }
      if (ended) {
        drain();
      }
    }

    /** Starts the thread, if there is none yet and the stream is not closed. */
    private synchronized void start() {
      if (thread == null && !ended) {
        Thread created = new NonblockingThread(this::runTasks, name);
        created.start();
        thread = created;
      }
    }

    /** Returns whether everything enqueued so far is done. */
    boolean isIdle() {
      // Pairs with the volatile store of done: the memory accesses of that work are over.
      long finished = done;
      return finished == enqueued.get();
    }

    private void runTasks() {
      SpinPolicy.enter();
      int idlePolls = 0;
      while (true) {
        Task task = queue.poll();
        if (task != null) {
          run(task);
          task = null;
          done++;
          idlePolls = 0;
        } else if (enqueued.get() != done) {
          Thread.onSpinWait(); // counted, and about to be added
        } else if (isClosed()) {
          break;
        } else if (idlePolls >= idlePollsAllowed() + YIELDS_BEFORE_PARKING) {
          park();
          idlePolls = 0;
        } else if (idlePolls++ < idlePollsAllowed()) {
          Thread.onSpinWait();
        } else {
          Thread.yield();
        }
      }
      SpinPolicy.exit();
      ended = true;
      drain();
      ended();
    }

    /**
     * Returns the polls before a yield. A wait for work may be long, so it yields the core earlier
     * than a wait for a peer.
     */
    private static int idlePollsAllowed() {
      return Math.min(SpinPolicy.pollsBeforeYield(), MAX_IDLE_POLLS);
    }

    private void park() {
      prepareToPark();
      parked = true;
      if (enqueued.get() == done && !isClosed()) {
        LockSupport.park(this);
      }
      parked = false;
      SpinPolicy.enter();
    }

    private void prepareToPark() {
      releaseTeam();
      SpinPolicy.exit();
      Thread.interrupted(); // a kernel may have left it set; parking would return at once
    }

    /** Runs the tasks that are still enqueued after the thread has ended. */
    private synchronized void drain() {
      for (Task task = queue.poll(); task != null; task = queue.poll()) {
        run(task);
        done++;
      }
    }

    @Override
    protected HostStream enqueueWait(HostStream other) {
      Live before = (Live) other;
      if (before.thread != null) {
        // Enqueue the milestone before the wait, so that a wait refers only to earlier work.
        Milestone milestone = new Milestone(this);
        before.offer(milestone);
        enqueue(stream -> stream.waitFor(milestone));
      }
      return this;
    }

    @Override
    protected HostStream newBranch(String branchName) {
      Live branch = device().newStream(branchName);
      branch.failsFast = failsFast;
      return branch;
    }

    @Override
    public Live failFast() {
      failsFast = true;
      return this;
    }

    @Override
    protected HostStream enqueueGraph(DeviceGraph graph) {
      ((HostGraph) graph).enqueueOn(this);
      return this;
    }

    @Override
    public Optional<StreamClock> clock(int points) {
      return Optional.of(new Clock(this, new Mark[points]));
    }

    @Override
    public CompletableFuture<Void> completion() {
      CompletableFuture<Void> future = NonblockingFuture.create();
      if (isClosed()) {
        future.completeExceptionally(closedFailure());
        return future;
      }
      unfinished.add(future);
      offer((Notice) stream -> stream.complete(future));
      if (isClosed()) {
        failUnfinished(); // close() may have missed this one
      }
      return future;
    }

    /** Enqueues an action that runs even if the stream is closed first. */
    void runAfterEnqueuedWork(Runnable action) {
      offer(new Afterwards(action));
    }

    /**
     * Creates streams for branches of graphs and starts their threads, until there are {@code
     * count}. Enqueuing a launch can then not fail to start a thread. Only graph branches are
     * enqueued on these streams, so a launch that waits for them waits only for its own work.
     */
    void prepareGraphBranches(int count) {
      synchronized (graphBranches) {
        lifecycle.checkOpen();
        while (graphBranches.size() < count) {
          Live branch = new Live(device(), name + "-graph" + (graphBranches.size() + 1));
          branch.failsFast = failsFast;
          branch.start();
          graphBranches.add(branch);
        }
      }
    }

    /** Returns the stream for a branch of a graph; for branch 0 this stream. */
    Live graphBranch(int number) {
      synchronized (graphBranches) {
        return number == 0 ? this : graphBranches.get(number - 1);
      }
    }

    @Override
    public void close() {
      if (!lifecycle.beginClose()) {
        return;
      }
      boolean neverStarted;
      synchronized (this) {
        neverStarted = thread == null;
        if (neverStarted) {
          ended = true;
        }
      }
      if (neverStarted) {
        drain();
        ended();
      } else {
        LockSupport.unpark(thread);
      }
      failUnfinished();
      closeBranches();
    }

    private void failUnfinished() {
      for (CompletableFuture<Void> future : unfinished) {
        if (unfinished.remove(future)) {
          future.completeExceptionally(closedFailure());
        }
      }
    }

    /** Runs a task. Called by the stream's thread, like all methods below. */
    void run(Task task) {
      if (!(task instanceof Always)) {
        boolean isWork = !(task instanceof Notice);
        if (isClosed()) {
          dropped |= isWork;
          return;
        }
        if (stopped && isWork) {
          return;
        }
      }
      try {
        task.run(this);
      } catch (Throwable e) {
        boolean namesRank =
            e instanceof FluxCclException known && known.rank() != FluxCclException.NO_RANK;
        note(namesRank ? (FluxCclException) e : failureOf(task, e));
      }
    }

    private DeviceFailure failureOf(Task task, Throwable e) {
      return new DeviceFailure(
          0, "KERNEL_FAILED", task + " on stream " + name + " failed: " + e, e);
    }

    private void waitFor(Milestone milestone) {
      if (milestone.await(this, false)) {
        noteFailureOf(milestone);
      }
    }

    /** Keeps the failure of work that this stream waited for, if there is one. */
    void noteFailureOf(Milestone passed) {
      if (passed.failure != null) {
        note(passed.failure);
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
    private FluxCclException failureFor(Live waiting) {
      if (dropped) {
        return closedFailure();
      }
      return failure != null && notified.add(waiting) ? failure : null;
    }

    private void complete(CompletableFuture<Void> future) {
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

    private BlockWorkers.Team team(int blockDim) {
      if (team == null || team.blockDim() != blockDim) {
        releaseTeam();
        team = device().blockWorkers.lease(blockDim);
      }
      return team;
    }

    private void releaseTeam() {
      if (team != null) {
        team.release();
        team = null;
      }
    }

    /** Called last by the stream's thread. */
    private void ended() {
      releaseTeam();
      // Not earlier: a launch that has started runs to its end, even if it drops its remaining
      // work.
      synchronized (graphBranches) {
        graphBranches.forEach(Live::close);
      }
      device().remove(this);
    }
  }
}
