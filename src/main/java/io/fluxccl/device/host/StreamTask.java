// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.device.KernelArgs;
import java.util.concurrent.CompletableFuture;

/**
 * One task of a host stream. Messages name it by its {@code toString()}. Immutable, except for
 * tasks that run once.
 */
interface StreamTask {
  /** Runs it; called by the stream's thread. */
  void run(LiveHostStream stream) throws Throwable;

  /** Returns whether it runs even if the stream was closed first. */
  default boolean survivesClose() {
    return false;
  }

  /** Returns whether other streams rely on its effect: they are notified if it was dropped. */
  default boolean isWork() {
    return true;
  }

  record Launch(HostKernel kernel, int gridDim, int blockDim, KernelArgs args, long abortAddress)
      implements StreamTask {
    @Override
    public void run(LiveHostStream stream) throws Throwable {
      if (blockDim > 1) {
        stream.team(blockDim).run(kernel, args, gridDim, abortAddress);
        return;
      }
      KernelThread thread = stream.singleThread();
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

  record Copy(long target, long source, long size) implements StreamTask {
    @Override
    public void run(LiveHostStream stream) {
      HostMemory.copy(target, source, size);
    }
  }

  record WriteValue(long address, long value) implements StreamTask {
    @Override
    public void run(LiveHostStream stream) {
      // Pairs with the acquire of the threads that poll the word: they see all work before it.
      HostMemory.putLongRelease(address, value);
    }
  }

  record Completion(CompletableFuture<Void> future) implements StreamTask {
    @Override
    public void run(LiveHostStream stream) {
      stream.complete(future);
    }

    @Override
    public boolean isWork() {
      return false;
    }
  }

  record WaitFor(Milestone milestone) implements StreamTask {
    @Override
    public void run(LiveHostStream stream) {
      if (milestone.await(stream, false)) {
        stream.noteFailureOf(milestone);
      }
    }
  }

  record Afterwards(Runnable action) implements StreamTask {
    @Override
    public void run(LiveHostStream stream) {
      action.run();
    }

    @Override
    public boolean survivesClose() {
      return true;
    }
  }
}
