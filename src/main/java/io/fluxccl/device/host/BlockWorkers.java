// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.NonblockingThread;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.KernelArgs;
import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * The threads of one device that run blocks of more than one thread. They start on demand, are
 * reused, and end with the device or after some idle time. Thread-safe.
 *
 * <p>They are no {@link io.fluxccl.concurrent.AgentThread}s: each runs one thread of a kernel, and
 * waits for the next by the spin policy of kernels.
 */
final class BlockWorkers {
  private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final String name;
  private final Lifecycle lifecycle;

  // All guarded by this.
  private final ArrayDeque<Worker> idle = new ArrayDeque<>();
  private int started;

  /**
   * Creates an empty set of threads.
   *
   * @param lifecycle the device's; its close ends the idle threads, and the others when they are
   *     returned
   */
  BlockWorkers(String name, Lifecycle lifecycle) {
    this.name = name;
    this.lifecycle = lifecycle;
    lifecycle.own(this::endIdle);
  }

  /** Leases the threads of a stream's blocks to the calling thread, which is the first of them. */
  Team lease(int blockDim) {
    Team team = new Team(blockDim - 1);
    int taken = 0;
    try {
      for (; taken < team.workers.length; taken++) {
        team.workers[taken] = takeOne(taken + 1);
        SpinPolicy.enter();
      }
      return team;
    } catch (RuntimeException | Error e) {
      for (int i = 0; i < taken; i++) {
        giveBack(team.workers[i]);
      }
      throw e;
    }
  }

  private synchronized Worker takeOne(int threadIdx) {
    Worker worker = idle.pollLast();
    if (worker == null) {
      worker = new Worker(name + "-block-" + started++);
      worker.thread.start();
    }
    if (worker.kernelThread == null || worker.kernelThread.threadIdx() != threadIdx) {
      // Seen by the worker's thread through the volatile store in assign().
      worker.kernelThread = new KernelThread(threadIdx);
    }
    return worker;
  }

  private synchronized void giveBack(Worker worker) {
    SpinPolicy.exit();
    if (lifecycle.isClosed()) {
      worker.end();
    } else {
      idle.addLast(worker);
    }
  }

  /** Removes a worker that was idle for long. Returns whether it was idle; then it ends. */
  private synchronized boolean retire(Worker worker) {
    return idle.remove(worker);
  }

  private synchronized void endIdle() {
    idle.forEach(Worker::end);
    idle.clear();
  }

  /** One thread of a block. Runs what the team that leased it assigns. */
  private final class Worker implements Runnable {
    private final Thread thread;
    private KernelThread kernelThread;

    /** The work to run; cleared by this thread once it has begun. */
    private volatile Team assigned;

    private volatile boolean parked;
    private volatile boolean ended;

    Worker(String name) {
      this.thread = new NonblockingThread(this, name);
    }

    private void assign(Team team) {
      assigned = team;
      if (parked) {
        LockSupport.unpark(thread);
      }
    }

    private void end() {
      ended = true;
      LockSupport.unpark(thread);
    }

    @Override
    public void run() {
      int polls = 0;
      while (!ended) {
        Team team = assigned;
        if (team != null) {
          assigned = null;
          team.runThread(kernelThread);
          polls = 0;
        } else if (polls < SpinPolicy.pollsBeforeYield()) {
          Thread.onSpinWait();
          polls++;
        } else if (parkUntilAssigned()) {
          return;
        }
      }
    }

    /** Returns whether this thread was idle for so long that it must end. */
    private boolean parkUntilAssigned() {
      Thread.interrupted(); // a kernel may have left it set; parking would return at once
      parked = true;
      // Pairs with assign(), which stores the team and then loads parked. This thread stores parked
      // and then loads the team.
      boolean nothingCame = false;
      if (assigned == null && !ended) {
        long start = System.nanoTime();
        LockSupport.parkNanos(this, IDLE_NANOS);
        nothingCame = System.nanoTime() - start >= IDLE_NANOS && assigned == null;
      }
      parked = false;
      return nothingCame && retire(this);
    }
  }

  /**
   * The threads of one stream's blocks: the stream's own thread as thread 0, and leased workers,
   * until a launch has another block size.
   */
  final class Team {
    private final Worker[] workers;
    private final KernelThread first = new KernelThread(0);
    private final Barrier barrier = new Barrier();
    private final AtomicInteger running = new AtomicInteger();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    // The current launch. The stream's thread writes it before it assigns work, and workers read it
    // after.
    private HostKernel kernel;
    private KernelArgs args;
    private int gridDim;
    private long abortAddress;
    private int launch;

    /**
     * The last launch that ended early because a thread failed; published by blocksDone. A number
     * instead of a flag, because a worker may read it after the next launch has started.
     */
    private int stoppedLaunch;

    /** Blocks done so far, in all launches; written by the last thread that leaves a block. */
    private volatile int blocksDone;

    private Team(int workers) {
      this.workers = new Worker[workers];
    }

    int blockDim() {
      return workers.length + 1;
    }

    /** Runs a grid and returns when all threads are done; throws the first failure of a thread. */
    void run(HostKernel newKernel, KernelArgs newArgs, int newGridDim, long newAbortAddress)
        throws Throwable {
      kernel = newKernel;
      args = newArgs;
      gridDim = newGridDim;
      abortAddress = newAbortAddress;
      launch++;
      barrier.reset(blockDim());
      running.set(blockDim());
      for (Worker worker : workers) {
        worker.assign(this);
      }
      runThread(first);
      // The launch must not outlive its arguments' memory.
      kernel = null;
      args = null;
      Throwable thrown = failure.getAndSet(null);
      if (thrown != null) {
        throw thrown;
      }
    }

    /** Runs on each thread: all blocks one after the other. */
    private void runThread(KernelThread thread) {
      HostKernel.Body body = kernel.body();
      KernelArgs arguments = args;
      int blocks = gridDim;
      int thisLaunch = launch;
      boolean isStreams = thread == first;
      thread.begin(blocks, blockDim(), abortAddress, barrier);
      for (int block = 0; block < blocks; block++) {
        int done = blocksDone;
        thread.block(block);
        try {
          body.run(thread, arguments);
        } catch (Throwable e) {
          failure.compareAndSet(null, e);
          barrier.broken = true;
        }
        barrier.leave();
        if (running.decrementAndGet() == 0) {
          barrier.reset(blockDim());
          running.set(blockDim());
          if (failure.get() != null) {
            stoppedLaunch = thisLaunch;
          }
          blocksDone = done + 1;
        } else if (isStreams || block < blocks - 1) {
          awaitBlock(done);
        } else {
          return;
        }
        if (stoppedLaunch == thisLaunch) {
          return;
        }
      }
    }

    /** Waits for the slowest thread; without an abort flag, since that thread may use memory. */
    private void awaitBlock(int done) {
      int step = 0;
      // Pairs with the volatile store of the last thread out of the block.
      while (blocksDone == done) {
        step = SpinWait.step(step, 0, -1);
      }
    }

    /** Returns the workers to the device. Called by the stream's thread. */
    void release() {
      for (Worker worker : workers) {
        giveBack(worker);
      }
    }
  }

  /**
   * A reusable barrier for the threads of a block. It does not wait for threads that have left. A
   * thread that fails breaks it, so that all threads return. Allocates nothing.
   */
  static final class Barrier {
    private static final int ARRIVED_SHIFT = 32;
    private static final int PARTIES_SHIFT = 48;
    private static final long COUNT_MASK = 0xffff;
    private static final long GENERATION_MASK = 0xffff_ffffL;

    /** Generation in bits 0-31, arrived in 32-47, parties in 48-63. */
    private final AtomicLong state = new AtomicLong();

    /** Makes all threads return, now and until the next reset. */
    private volatile boolean broken;

    /** Prepares the barrier for a block. Called while no thread of the block runs. */
    private void reset(int parties) {
      broken = false;
      state.set((long) parties << PARTIES_SHIFT | state.get() & GENERATION_MASK);
    }

    boolean await(long abortAddress) {
      if (broken) {
        return false;
      }
      // Full fence: writes before the arrival are visible to threads that see the generation
      // change.
      int generation = (int) state.getAndUpdate(Barrier::arrive);
      int step = 0;
      while ((int) state.get() == generation) {
        step = SpinWait.step(step, abortAddress, -1);
        if (step < 0) {
          broken = true;
        }
        if (broken) {
          return false;
        }
      }
      // A thread that aborted elsewhere has left: the other threads met, but its work is missing.
      return !broken && !SpinWait.isAborted(abortAddress);
    }

    /** Removes the calling thread from the barrier. */
    private void leave() {
      state.getAndUpdate(Barrier::depart);
    }

    private static long arrive(long before) {
      long more = before + (1L << ARRIVED_SHIFT);
      return arrived(more) == parties(more) ? nextGeneration(before) : more;
    }

    private static long depart(long before) {
      long left = before - (1L << PARTIES_SHIFT);
      return parties(left) > 0 && arrived(left) == parties(left) ? nextGeneration(left) : left;
    }

    private static long parties(long state) {
      return state >>> PARTIES_SHIFT;
    }

    private static long arrived(long state) {
      return state >>> ARRIVED_SHIFT & COUNT_MASK;
    }

    private static long nextGeneration(long state) {
      return parties(state) << PARTIES_SHIFT | state + 1 & GENERATION_MASK;
    }
  }
}
