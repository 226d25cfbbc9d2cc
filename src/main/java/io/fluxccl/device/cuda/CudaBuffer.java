package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A part of a {@link CudaAllocation}. Thread-safe.
 *
 * <p>Closing it lets go of the allocation once the work that was enqueued before is done, without
 * waiting for it. Who uses the memory beyond that, a registration for example, retains the {@link
 * #allocation()}. {@link #upload} and {@link #download} wait for the copy and for nothing else.
 */
public final class CudaBuffer implements DeviceBuffer {
  private final CudaDevice device;
  private final CudaAllocation allocation;
  private final long allocationOffset;
  private final long size;
  private final CudaBuffer whole;
  private final AtomicBoolean closed = new AtomicBoolean();

  /** Takes over one user of the allocation. */
  CudaBuffer(CudaDevice device, CudaAllocation allocation, long allocationOffset, long size) {
    this.device = device;
    this.allocation = allocation;
    this.allocationOffset = allocationOffset;
    this.size = size;
    this.whole = this;
  }

  private CudaBuffer(CudaBuffer whole, long allocationOffset, long size) {
    this.device = whole.device;
    this.allocation = whole.allocation;
    this.allocationOffset = allocationOffset;
    this.size = size;
    this.whole = whole;
  }

  @Override
  public CudaDevice device() {
    return device;
  }

  @Override
  public long address() {
    return allocation.address() + allocationOffset;
  }

  @Override
  public long size() {
    return size;
  }

  /** The allocation that it is a part of. */
  public CudaAllocation allocation() {
    return allocation;
  }

  /** Where in {@link #allocation()} it begins, in bytes. */
  public long allocationOffset() {
    return allocationOffset;
  }

  /** Whether it, or the buffer that it is a slice of, was closed. */
  public boolean isClosed() {
    return whole.closed.get();
  }

  @Override
  public CudaBuffer slice(long offset, long sliceSize) {
    checkRange("slice", offset, sliceSize);
    return new CudaBuffer(whole, allocationOffset + offset, sliceSize);
  }

  @Override
  public void upload(long offset, ByteBuffer source) {
    retain();
    try {
      checkRange("upload", offset, source.remaining());
      device.context().copyLane().upload(address() + offset, source);
    } finally {
      release();
    }
  }

  @Override
  public void download(long offset, ByteBuffer target) {
    retain();
    try {
      checkRange("download", offset, target.remaining());
      device.context().copyLane().download(address() + offset, target);
    } finally {
      release();
    }
  }

  @Override
  public void retain() {
    if (isClosed() || !allocation.tryRetain()) {
      throw new InvalidUsage(this + " is closed");
    }
  }

  @Override
  public void release() {
    allocation.release();
  }

  @Override
  public void close() {
    if (whole == this && closed.compareAndSet(false, true)) {
      device.whenEnqueuedWorkIsDone(allocation::release);
    }
  }

  /** The address of a range for a stream of a device; refuses what is not there. */
  static long addressFor(
      CudaDevice device, String what, DeviceBuffer buffer, long offset, long size) {
    if (!(buffer instanceof CudaBuffer) || buffer.device().index() != device.index()) {
      throw new InvalidUsage(
          what + " is memory of " + buffer.device() + ", not of GPU " + device.index());
    }
    CudaBuffer memory = (CudaBuffer) buffer;
    memory.checkRange(what, offset, size);
    if (memory.isClosed()) {
      throw new InvalidUsage(what + " " + memory + " is closed");
    }
    return memory.address() + offset;
  }

  void checkRange(String what, long offset, long length) {
    if (offset < 0 || length < 0 || offset > size - length) {
      throw new InvalidUsage(
          what
              + " range offset="
              + offset
              + " length="
              + length
              + " is outside the "
              + size
              + " bytes of the buffer");
    }
  }

  @Override
  public String toString() {
    return "CudaBuffer(size=" + size + ", at " + allocationOffset + " of " + allocation + ")";
  }
}
