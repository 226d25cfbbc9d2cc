// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.concurrent.NonblockingThread;
import io.fluxccl.concurrent.SpinPolicy;
import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * The threads of one device that run blocks of more than one thread. They start on demand, are
 * reused, and end with the device or after some idle time. Thread-safe.
 */
final class BlockWorkers {
  private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final String name;

  // All guarded by this.
  private final ArrayDeque<Worker> idle = new ArrayDeque<>();
  private boolean closed;
  private int started;

  BlockWorkers(String name) {
    this.name = name;
  }

  /** Leases threads to the caller until it returns them. */
  void lease(Worker[] workers) {
    int taken = 0;
    try {
      for (; taken < workers.length; taken++) {
        workers[taken] = takeOne(taken + 1);
        SpinPolicy.enter();
      }
    } catch (RuntimeException | Error e) {
      for (int i = 0; i < taken; i++) {
        giveBack(workers[i]);
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
    worker.become(threadIdx);
    return worker;
  }

  synchronized void giveBack(Worker worker) {
    SpinPolicy.exit();
    if (closed) {
      worker.end();
    } else {
      idle.addLast(worker);
    }
  }

  /** Removes a worker that was idle for long. Returns whether it was idle; then it ends. */
  private synchronized boolean retire(Worker worker) {
    return idle.remove(worker);
  }

  /** Ends the idle threads now, and the others when they are returned. */
  synchronized void close() {
    closed = true;
    idle.forEach(Worker::end);
    idle.clear();
  }

  /** One thread of a block. Runs what the team that leased it assigns. */
  final class Worker {
    private final Thread thread;
    private KernelThread kernelThread;

    /** The work to run; cleared by this thread once it has begun. */
    private volatile BlockTeam assigned;

    private volatile boolean parked;
    private volatile boolean ended;

    private Worker(String name) {
      this.thread = new NonblockingThread(this::run, name);
    }

    /** Sets its index in the block. Called before work is assigned. */
    private void become(int threadIdx) {
      if (kernelThread == null || kernelThread.threadIdx() != threadIdx) {
        // Seen by this thread through the volatile store in assign().
        kernelThread = new KernelThread(threadIdx);
      }
    }

    void assign(BlockTeam team) {
      assigned = team;
      if (parked) {
        LockSupport.unpark(thread);
      }
    }

    private void end() {
      ended = true;
      LockSupport.unpark(thread);
    }

    private void run() {
      int polls = 0;
      while (!ended) {
        BlockTeam team = assigned;
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
}
