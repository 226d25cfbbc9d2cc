// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Aborted;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Lifecycle;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The base of all devices' streams. It checks enqueued work and owns the branches. A stream either
 * runs its work, or belongs to a {@link Recording}, which stores it.
 *
 * @param <D> one kind of device
 * @param <S> its streams
 */
@Experimental
public abstract class AbstractStream<D extends Device, S extends AbstractStream<D, S>>
    implements DeviceStream {
  /** The device it belongs to. */
  protected final D device;

  /** For thread names and diagnostics. */
  protected final String name;

  /** The stream's own, or that of its recording. */
  protected final Lifecycle lifecycle;

  private final Recording recording;
  private final Map<String, S> branches = new ConcurrentHashMap<>();

  /**
   * Creates a stream that is open.
   *
   * @param device it belongs to
   * @param name for thread names and diagnostics
   * @param recording the recording that stores its work; null for a stream that runs it
   */
  protected AbstractStream(D device, String name, Recording recording) {
    this.device = device;
    this.name = name;
    this.recording = recording;
    this.lifecycle = recording == null ? new Lifecycle("stream " + name) : recording.lifecycle;
  }

  /**
   * Enqueues a copy of bytes.
   *
   * @param target address to copy to
   * @param source address to copy from
   * @param size bytes, 0 or more
   * @return this stream
   */
  protected abstract S enqueueCopy(long target, long source, long size);

  /**
   * Enqueues a store of a 64-bit value, released after all work enqueued before it.
   *
   * @param target address of the word
   * @param value the value to store
   * @return this stream
   */
  protected abstract S enqueueWrite(long target, long value);

  /**
   * Makes later work wait for all work enqueued on another stream so far.
   *
   * @param other open, and of the same class and recording
   * @return this stream
   */
  protected abstract S enqueueWait(S other);

  /**
   * Enqueues a launch; refused unless a subclass overrides it.
   *
   * @param graph of this stream's device
   * @return this stream
   */
  protected S enqueueGraph(DeviceGraph graph) {
    throw new InvalidUsage(this + " launches no graph");
  }

  /**
   * Creates a branch.
   *
   * @param branchName its full name
   */
  protected abstract S newBranch(String branchName);

  /** Returns whether this stream's work can use a buffer of that class and device. */
  protected abstract boolean canUse(DeviceBuffer buffer);

  /** Returns whether this stream's work can use pinned memory of that class. */
  protected boolean canUse(PinnedBuffer buffer) {
    return true;
  }

  /**
   * Refuses a stream that is closed, or records for another thread.
   *
   * @throws InvalidUsage if it is closed, or another thread records
   */
  protected final void checkOpen() {
    lifecycle.checkOpen();
    if (recording != null && recording.thread != Thread.currentThread()) {
      throw InvalidUsage.of(
          "%s is for thread %s only, which began it", this, recording.thread.getName());
    }
  }

  @Override
  public final D device() {
    return device;
  }

  /** Returns whether this stream was closed, or its recording is over. */
  public final boolean isClosed() {
    return lifecycle.isClosed();
  }

  /** Closes the branches of a stream that runs its work; then the stream's state is CLOSED. */
  protected final void closeBranches() {
    branches.values().forEach(AbstractStream::close);
    lifecycle.closeChildren();
  }

  /** Returns the failure of the futures of a closed stream. */
  protected final Aborted closedFailure() {
    return new Aborted(FluxCclException.NO_RANK, "stream " + name + " was closed");
  }

  /**
   * Refuses closed buffers among a launch's arguments. A recording retains the device's buffers.
   *
   * @param kernel its name
   * @throws InvalidUsage if one is closed
   */
  protected final void keep(String kernel, KernelArgs args) {
    for (int i = 0; i < args.count(); i++) {
      Object value = args.get(i, Object.class);
      if (value instanceof DeviceBuffer buffer
          ? buffer.isClosed()
          : value instanceof PinnedBuffer pinned && pinned.isClosed()) {
        throw InvalidUsage.of(
            "argument %s of kernel %s is closed: %s; close a buffer after its last launch",
            i, kernel, value);
      }
      if (recording != null && value instanceof DeviceBuffer buffer) {
        checkOpen();
        recording.buffers().add(buffer);
      }
    }
  }

  private long addressOf(String what, DeviceBuffer buffer, long offset, long size) {
    if (!canUse(buffer)) {
      throw InvalidUsage.of("%s is memory of %s, not of %s", what, buffer.device(), device);
    }
    ((PartBuffer<?, ?>) buffer).checkRange(what, offset, size);
    if (buffer.isClosed()) {
      throw new InvalidUsage(what + " " + buffer + " is closed");
    }
    if (recording != null) {
      checkOpen();
      recording.buffers().add(buffer);
    }
    return buffer.address() + offset;
  }

  private long addressOf(String what, PinnedBuffer buffer, int offset, int size) {
    if (!canUse(buffer)) {
      throw InvalidUsage.of("%s is pinned memory that %s can't reach: %s", what, this, buffer);
    }
    if (offset < 0 || size < 0 || offset > buffer.size() - size) {
      throw InvalidUsage.of(
          "%s range offset=%s length=%s is outside a pinned buffer of %s bytes",
          what, offset, size, buffer.size());
    }
    if (buffer.isClosed()) {
      throw new InvalidUsage(what + " " + buffer + " is closed");
    }
    return buffer.deviceAddress() + offset;
  }

  @Override
  public final S copy(
      DeviceBuffer target, long targetOffset, DeviceBuffer source, long sourceOffset, long size) {
    return enqueueCopy(
        addressOf("target", target, targetOffset, size),
        addressOf("source", source, sourceOffset, size),
        size);
  }

  @Override
  public final S copy(
      PinnedBuffer target, int targetOffset, DeviceBuffer source, long sourceOffset, int size) {
    return enqueueCopy(
        addressOf("target", target, targetOffset, size),
        addressOf("source", source, sourceOffset, size),
        size);
  }

  @Override
  public final S copy(
      DeviceBuffer target, long targetOffset, PinnedBuffer source, int sourceOffset, int size) {
    return enqueueCopy(
        addressOf("target", target, targetOffset, size),
        addressOf("source", source, sourceOffset, size),
        size);
  }

  @Override
  public final S writeValue(DeviceBuffer target, long offset, long value) {
    checkAligned("offset", offset);
    return enqueueWrite(addressOf("target", target, offset, Long.BYTES), value);
  }

  @Override
  public final S writeValue(PinnedBuffer target, int index, long value) {
    checkAligned("index", index);
    return enqueueWrite(addressOf("target", target, index, Long.BYTES), value);
  }

  private static void checkAligned(String what, long offset) {
    if (offset % Long.BYTES != 0) {
      throw new InvalidUsage(what + "=" + offset + " of a 64-bit value; give a multiple of 8");
    }
  }

  @Override
  @SuppressWarnings("unchecked") // streams of one device kind, or of one recording, have one class
  public final S waitFor(DeviceStream other) {
    checkOpen();
    if (!(other instanceof AbstractStream<?, ?> known)
        || known.recording != recording
        || known.device.kind() != device.kind()) {
      throw InvalidUsage.of(
          "stream %s can't wait for %s: that one is not %s",
          name, other, recording == null ? "a running stream of this kind" : "of this recording");
    }
    S before = (S) other;
    before.checkOpen();
    return before == this ? before : enqueueWait(before);
  }

  @Override
  public final S branch(String branchName) {
    checkOpen();
    S branch = branches.get(branchName);
    if (branch == null || branch.isClosed()) {
      branch =
          branches.compute(
              branchName,
              (key, old) -> old == null || old.isClosed() ? newBranch(name + "-" + key) : old);
    }
    if (isClosed()) { // close() may have missed this one
      branch.close();
      checkOpen();
    }
    return branch;
  }

  @Override
  public final S launch(DeviceGraph graph) {
    if (graph.device() != device) {
      throw new InvalidUsage(graph + " is not of this stream's device, " + device);
    }
    return enqueueGraph(graph);
  }

  @Override
  public CompletableFuture<Void> completion() {
    throw new InvalidUsage(
        this + " records and has no completion; launch the graph and ask that stream");
  }

  @Override
  public void close() {
    throw new InvalidUsage(this + " can't be closed; it ends with its recording");
  }
}
