package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;

/**
 * A stream of the host device: one that runs what it is given on a thread of its own, or one that
 * records it for a graph.
 */
public abstract class HostStream implements DeviceStream {
  private final HostDevice device;
  private final String name;

  HostStream(HostDevice device, String name) {
    this.device = device;
    this.name = name;
  }

  /** Takes one thing more; refuses when it is too late for that. */
  abstract void enqueue(StreamTask task);

  /** Told of each buffer that is about to be used. */
  void keep(DeviceBuffer buffer) {}

  /** Told of each launch's arguments. */
  void keep(KernelArgs args) {}

  String name() {
    return name;
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
    keep(args);
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

  private long addressOf(String what, DeviceBuffer buffer, long offset, long size) {
    if (!(buffer instanceof HostBuffer)) {
      throw new InvalidUsage(
          what + " is memory of " + buffer.device() + ", not of the host device");
    }
    HostBuffer hostBuffer = (HostBuffer) buffer;
    hostBuffer.checkRange(what, offset, size);
    if (hostBuffer.isClosed()) {
      throw new InvalidUsage(what + " " + buffer + " is closed");
    }
    keep(buffer);
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
      throw InvalidUsage.of(
          "%s range offset=%s length=%s is outside a pinned buffer of %s bytes",
          what, offset, size, buffer.size());
    }
    if (buffer.isClosed()) {
      throw new InvalidUsage(what + " is closed");
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
      throw InvalidUsage.of(
          "index=%s in a pinned buffer of %s bytes; give a multiple of 8 that leaves"
              + " room for 8 bytes",
          index, target.size());
    }
    enqueue(new StreamTask.WriteValue(target.deviceAddress() + index, value));
    return this;
  }

  @Override
  public abstract HostStream waitFor(DeviceStream other);

  @Override
  public abstract HostStream branch(String name);

  @Override
  public abstract HostStream launch(DeviceGraph graph);

  InvalidUsage cannotWaitFor(DeviceStream other, String why) {
    return new InvalidUsage("stream " + name + " can't wait for " + other + ": " + why);
  }

  @Override
  public String toString() {
    return "HostStream(" + name + ")";
  }
}
