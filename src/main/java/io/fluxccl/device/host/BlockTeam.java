// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.KernelArgs;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The threads of one stream's blocks: the stream's own thread as thread 0, and workers leased from
 * the device until a launch has another block size.
 */
final class BlockTeam {
  private final BlockWorkers home;
  private final BlockWorkers.Worker[] workers;
  private final KernelThread first = new KernelThread(0);
  private final BlockBarrier barrier = new BlockBarrier();
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

  /** Leases workers. Called by the stream's thread. */
  BlockTeam(BlockWorkers home, int blockDim) {
    this.home = home;
    this.workers = new BlockWorkers.Worker[blockDim - 1];
    home.lease(workers);
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
    for (BlockWorkers.Worker worker : workers) {
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
  void runThread(KernelThread thread) {
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
        barrier.breakUp();
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
    for (BlockWorkers.Worker worker : workers) {
      home.giveBack(worker);
    }
  }
}
