package io.fluxccl.device.host;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A stream of the host device: a queue, and a thread that starts with the first work and sleeps
 * when there is none. Any threads may enqueue, also at the same time; closing completes the futures
 * on the thread that closes.
 */
public final class HostStream implements DeviceStream {
  private static final int MAX_SUPPRESSED = 8;

  private final HostDevice device;
  private final String name;
  private final StreamWorker worker;
  private final KernelThread singleThread = new KernelThread(0);
  private final Set<CompletableFuture<Void>> unfinished = ConcurrentHashMap.newKeySet();
  private volatile boolean closed;

  // Both used by the stream's thread only.
  private BlockTeam team;
  private DeviceFailure failure;

  HostStream(HostDevice device, String name) {
    this.device = device;
    this.name = name;
    this.worker = new StreamWorker(this, name);
  }

  @Override
  public HostDevice device() {
    return device;
  }

  /**
   * {@inheritDoc}
   *
   * <p>An {@link AbortFlag} among the arguments is the one that {@link KernelThread#abortAddress()}
   * gives.
   */
  @Override
  public HostStream launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
    if (!(kernel instanceof HostKernel)) {
      throw new InvalidUsage(
          "kernel "
              + kernel.name()
              + " is for "
              + kernel.kind()
              + ", this is the host device; make it with HostKernel.of");
    }
    if (gridDim < 1 || blockDim < 1 || blockDim > HostKernel.MAX_BLOCK_DIM) {
      throw new InvalidUsage(
          "gridDim="
              + gridDim
              + " blockDim="
              + blockDim
              + " of kernel "
              + kernel.name()
              + "; a grid has 1 block or more, a block 1 to "
              + HostKernel.MAX_BLOCK_DIM
              + " threads");
    }
    enqueue(
        new StreamTask.Launch((HostKernel) kernel, gridDim, blockDim, args, abortAddress(args)));
    return this;
  }

  private static long abortAddress(KernelArgs args) {
    for (int i = 0; i < args.count(); i++) {
      Object value = args.get(i, Object.class);
      if (value instanceof AbortFlag) {
        return ((AbortFlag) value).deviceAddress();
      }
    }
    return 0;
  }

  @Override
  public HostStream copy(
      DeviceBuffer target, long targetOffset, DeviceBuffer source, long sourceOffset, long size) {
    long to = addressOf("target", target, targetOffset, size);
    long from = addressOf("source", source, sourceOffset, size);
    enqueue(new StreamTask.Copy(to, from, size));
    return this;
  }

  private static long addressOf(String what, DeviceBuffer buffer, long offset, long size) {
    if (!(buffer instanceof HostBuffer)) {
      throw new InvalidUsage(
          what + " is memory of " + buffer.device() + ", not of the host device");
    }
    HostBuffer hostBuffer = (HostBuffer) buffer;
    hostBuffer.checkRange(what, offset, size);
    if (hostBuffer.isClosed()) {
      throw new InvalidUsage(what + " " + buffer + " is closed");
    }
    return hostBuffer.address() + offset;
  }

  @Override
  public HostStream copy(
      PinnedBuffer target, int targetOffset, DeviceBuffer source, long sourceOffset, int size) {
    long to = addressOf("target", target, targetOffset, size);
    long from = addressOf("source", source, sourceOffset, size);
    enqueue(new StreamTask.Copy(to, from, size));
    return this;
  }

  @Override
  public HostStream copy(
      DeviceBuffer target, long targetOffset, PinnedBuffer source, int sourceOffset, int size) {
    long to = addressOf("target", target, targetOffset, size);
    long from = addressOf("source", source, sourceOffset, size);
    enqueue(new StreamTask.Copy(to, from, size));
    return this;
  }

  private static long addressOf(String what, PinnedBuffer buffer, int offset, int size) {
    if (offset < 0 || size < 0 || offset > buffer.size() - size) {
      throw new InvalidUsage(
          what
              + " range offset="
              + offset
              + " length="
              + size
              + " is outside a pinned buffer of "
              + buffer.size()
              + " bytes");
    }
    return buffer.deviceAddress() + offset;
  }

  @Override
  public HostStream writeValue(DeviceBuffer target, long offset, long value) {
    if (offset % Long.BYTES != 0) {
      throw new InvalidUsage("offset=" + offset + " of a 64-bit value; give a multiple of 8");
    }
    long address = addressOf("target", target, offset, Long.BYTES);
    enqueue(new StreamTask.WriteValue(address, value));
    return this;
  }

  @Override
  public HostStream writeValue(PinnedBuffer target, int index, long value) {
    if (index < 0 || index > target.size() - Long.BYTES || index % Long.BYTES != 0) {
      throw new InvalidUsage(
          "index="
              + index
              + " in a pinned buffer of "
              + target.size()
              + " bytes; give a multiple of 8 that leaves room for 8 bytes");
    }
    enqueue(new StreamTask.WriteValue(target.deviceAddress() + index, value));
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

  private void enqueue(StreamTask task) {
    if (closed) {
      throw new InvalidUsage("stream " + name + " is closed");
    }
    worker.enqueue(task);
  }

  /** Whether everything enqueued so far is done. */
  boolean isIdle() {
    return worker.isIdle();
  }

  /** Enqueues something that is done even when the stream is closed before. */
  void runAfterEnqueuedWork(Runnable action) {
    worker.enqueue(new StreamTask.Afterwards(action));
  }

  boolean isClosed() {
    return closed;
  }

  @Override
  public void close() {
    closed = true;
    worker.wakeToEnd();
    failUnfinished();
  }

  private void failUnfinished() {
    for (CompletableFuture<Void> future : unfinished) {
      if (unfinished.remove(future)) {
        future.completeExceptionally(closedFailure());
      }
    }
  }

  private Aborted closedFailure() {
    return new Aborted(FluxCclException.NO_RANK, "stream " + name + " was closed");
  }

  /** Called by the stream's thread, as all below. */
  void run(StreamTask task) {
    if (closed && !task.survivesClose()) {
      return;
    }
    try {
      task.run(this);
    } catch (Throwable e) {
      note(task, e);
    }
  }

  private void note(StreamTask task, Throwable cause) {
    DeviceFailure next =
        new DeviceFailure(
            0,
            "KERNEL_FAILED",
            task.description() + " on stream " + name + " failed: " + cause,
            cause);
    if (failure == null) {
      failure = next;
    } else if (failure.getSuppressed().length < MAX_SUPPRESSED) {
      failure.addSuppressed(next);
    }
  }

  void complete(CompletableFuture<Void> future) {
    unfinished.remove(future);
    DeviceFailure noted = failure;
    failure = null;
    if (noted == null) {
      future.complete(null);
    } else {
      future.completeExceptionally(noted);
    }
  }

  KernelThread singleThread() {
    return singleThread;
  }

  BlockTeam team(int blockDim) {
    if (team == null || team.blockDim() != blockDim) {
      releaseTeam();
      team = new BlockTeam(device.blockWorkers(), blockDim);
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
    device.remove(this);
  }

  @Override
  public String toString() {
    return "HostStream(" + name + ")";
  }
}
