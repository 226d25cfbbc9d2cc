package io.fluxccl.device.host;

import io.fluxccl.device.KernelArgs;
import java.util.concurrent.CompletableFuture;

/** One thing that a stream of the host does. Immutable, but for what happens once. */
abstract class StreamTask {
  /** Does it; called by the stream's thread. */
  abstract void run(LiveHostStream stream) throws Throwable;

  /** Whether it is done even when the stream was closed before it began. */
  boolean survivesClose() {
    return false;
  }

  /** Whether others rely on what it does: they are told if it was dropped. */
  boolean isWork() {
    return true;
  }

  /** What a failure's message calls it. */
  abstract String description();

  static final class Launch extends StreamTask {
    private final HostKernel kernel;
    private final int gridDim;
    private final int blockDim;
    private final KernelArgs args;
    private final long abortAddress;

    Launch(HostKernel kernel, int gridDim, int blockDim, KernelArgs args, long abortAddress) {
      this.kernel = kernel;
      this.gridDim = gridDim;
      this.blockDim = blockDim;
      this.args = args;
      this.abortAddress = abortAddress;
    }

    @Override
    void run(LiveHostStream stream) throws Throwable {
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
    String description() {
      return "kernel " + kernel.name() + " <<<" + gridDim + ", " + blockDim + ">>>";
    }
  }

  static final class Copy extends StreamTask {
    private final long target;
    private final long source;
    private final long size;

    Copy(long target, long source, long size) {
      this.target = target;
      this.source = source;
      this.size = size;
    }

    @Override
    void run(LiveHostStream stream) {
      HostMemory.copy(target, source, size);
    }

    @Override
    String description() {
      return "copy of " + size + " bytes";
    }
  }

  static final class WriteValue extends StreamTask {
    private final long address;
    private final long value;

    WriteValue(long address, long value) {
      this.address = address;
      this.value = value;
    }

    @Override
    void run(LiveHostStream stream) {
      // Pairs with the acquire of whoever polls that word: it sees all the stream's work before.
      HostMemory.putLongRelease(address, value);
    }

    @Override
    String description() {
      return "store of value " + value;
    }
  }

  static final class Completion extends StreamTask {
    private final CompletableFuture<Void> future;

    Completion(CompletableFuture<Void> future) {
      this.future = future;
    }

    @Override
    void run(LiveHostStream stream) {
      stream.complete(future);
    }

    @Override
    boolean isWork() {
      return false;
    }

    @Override
    String description() {
      return "completion";
    }
  }

  static final class WaitFor extends StreamTask {
    private final Milestone milestone;
    private final String other;

    WaitFor(Milestone milestone, String other) {
      this.milestone = milestone;
      this.other = other;
    }

    @Override
    void run(LiveHostStream stream) {
      if (milestone.await(stream, false) && milestone.failure() != null) {
        stream.note(milestone.failure());
      }
    }

    @Override
    String description() {
      return "wait for stream " + other;
    }
  }

  static final class Afterwards extends StreamTask {
    private final Runnable action;

    Afterwards(Runnable action) {
      this.action = action;
    }

    @Override
    void run(LiveHostStream stream) {
      action.run();
    }

    @Override
    boolean survivesClose() {
      return true;
    }

    @Override
    String description() {
      return "release of memory";
    }
  }
}
