package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.PinnedBuffer;
import java.util.concurrent.atomic.AtomicBoolean;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Page-locked memory of the host that host threads and all GPUs of this process reach; reads by a
 * GPU cross PCIe each time. Two cache lines apart from everything else.
 */
public final class CudaPinnedBuffer implements PinnedBuffer {
  private final CudaDevice device;
  private final PinnedBlock block;
  private final long deviceAddress;
  private final UnsafeBuffer buffer;
  private final AtomicBoolean closed = new AtomicBoolean();

  /** Takes over one user of the block. */
  CudaPinnedBuffer(CudaDevice device, PinnedBlock block, long offset, int size) {
    this.device = device;
    this.block = block;
    this.deviceAddress = block.deviceAddress() + offset;
    this.buffer = block.view(offset, size);
  }

  @Override
  public AtomicBuffer buffer() {
    return buffer;
  }

  @Override
  public long deviceAddress() {
    return deviceAddress;
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
      device.whenEnqueuedWorkIsDone(block::release);
    }
  }

  /** Releases it now: for callers that know that nothing uses it. */
  void closeNow() {
    if (closed.compareAndSet(false, true)) {
      block.release();
    }
  }

  /** The address of a range for any GPU's stream; refuses what is not there. */
  static long addressFor(String what, PinnedBuffer buffer, int offset, int size) {
    if (!(buffer instanceof CudaPinnedBuffer)) {
      throw new InvalidUsage(what + " is pinned memory that GPUs can't reach: " + buffer);
    }
    if (offset < 0 || size < 0 || offset > buffer.size() - size) {
      throw InvalidUsage.of(
          "%s range offset=%s length=%s is outside a pinned buffer of %s bytes",
          what, offset, size, buffer.size());
    }
    if (((CudaPinnedBuffer) buffer).isClosed()) {
      throw new InvalidUsage(what + " " + buffer + " is closed");
    }
    return buffer.deviceAddress() + offset;
  }

  @Override
  public String toString() {
    return "CudaPinnedBuffer(size=" + size() + ", in " + block + ")";
  }
}
