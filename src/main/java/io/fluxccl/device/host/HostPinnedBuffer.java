package io.fluxccl.device.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.PinnedBuffer;
import java.util.concurrent.atomic.AtomicBoolean;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** Memory of this process only; two cache lines apart from everything else. */
final class HostPinnedBuffer implements PinnedBuffer {
  private static final int ALIGNMENT = 128;

  private final HostDevice device;
  private final long allocation;
  private final UnsafeBuffer buffer;
  private final AtomicBoolean closed = new AtomicBoolean();

  private HostPinnedBuffer(HostDevice device, long allocation, UnsafeBuffer buffer) {
    this.device = device;
    this.allocation = allocation;
    this.buffer = buffer;
  }

  static HostPinnedBuffer allocate(HostDevice device, int size) {
    if (size < 1) {
      throw new InvalidUsage("size=" + size + "; give 1 or more");
    }
    long length = (size + ALIGNMENT - 1L & -ALIGNMENT) + ALIGNMENT;
    long allocation;
    try {
      allocation = UnsafeApi.allocateMemory(length);
    } catch (OutOfMemoryError e) {
      throw new DeviceFailure(
          0, "OUT_OF_MEMORY", "allocating " + size + " bytes of pinned memory failed", e);
    }
    UnsafeApi.setMemory(allocation, length, (byte) 0);
    long aligned = allocation + ALIGNMENT - 1 & -ALIGNMENT;
    return new HostPinnedBuffer(device, allocation, new UnsafeBuffer(aligned, size));
  }

  @Override
  public AtomicBuffer buffer() {
    return buffer;
  }

  @Override
  public long deviceAddress() {
    return buffer.addressOffset();
  }

  @Override
  public int size() {
    return buffer.capacity();
  }

  @Override
  public boolean isClosed() {
    return closed.get();
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      device.whenEnqueuedWorkIsDone(() -> UnsafeApi.freeMemory(allocation));
    }
  }
}
