package io.fluxccl.device.host;

import io.fluxccl.concurrent.SpinPolicy;
import java.util.ArrayDeque;

/**
 * The threads that run blocks of more than one thread, of one device. Started when first needed,
 * kept for the next block, ended with the device or after some idle time. Thread-safe.
 */
final class BlockWorkers {
  private final String name;

  // All guarded by this.
  private final ArrayDeque<BlockWorker> idle = new ArrayDeque<>();
  private boolean closed;
  private int started;

  BlockWorkers(String name) {
    this.name = name;
  }

  /** Fills {@code workers} with threads that are the caller's until it gives them back. */
  void lease(BlockWorker[] workers) {
    int taken = 0;
    try {
      for (; taken < workers.length; taken++) {
        workers[taken] = takeOne(taken + 1);
        SpinPolicy.enter();
      }
    } finally {
      if (taken < workers.length) {
        for (int i = 0; i < taken; i++) {
          giveBack(workers[i]);
        }
      }
    }
  }

  private BlockWorker takeOne(int threadIdx) {
    BlockWorker worker;
    synchronized (this) {
      worker = idle.pollLast();
      if (worker == null) {
        worker = new BlockWorker(this, name + "-block-" + started++);
      }
    }
    if (worker.getState() == Thread.State.NEW) {
      HostDevice.start(worker);
    }
    worker.become(threadIdx);
    return worker;
  }

  void giveBack(BlockWorker worker) {
    SpinPolicy.exit();
    boolean end;
    synchronized (this) {
      end = closed;
      if (!end) {
        idle.addLast(worker);
      }
    }
    if (end) {
      worker.end();
    }
  }

  /** Whether the worker, idle for long, was here and is removed: then it ends. */
  synchronized boolean retire(BlockWorker worker) {
    return idle.remove(worker);
  }

  /** Ends the idle threads now, the others when they are given back. */
  void close() {
    BlockWorker[] toEnd;
    synchronized (this) {
      closed = true;
      toEnd = idle.toArray(new BlockWorker[0]);
      idle.clear();
    }
    for (BlockWorker worker : toEnd) {
      worker.end();
    }
  }
}
