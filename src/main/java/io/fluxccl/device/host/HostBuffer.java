package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A part of a {@link SharedSegment}. Thread-safe.
 *
 * <p>Closing it lets go of the segment once the work that was enqueued before is done, without
 * waiting for it. Who uses the memory beyond that, a registration for example, retains the {@link
 * #segment()}.
 */
public final class HostBuffer implements DeviceBuffer {
  private final HostDevice device;
  private final SharedSegment segment;
  private final long segmentOffset;
  private final long size;
  private final HostBuffer whole;
  private final AtomicBoolean closed = new AtomicBoolean();

  /** Takes over one user of the segment. */
  HostBuffer(HostDevice device, SharedSegment segment, long segmentOffset, long size) {
    this.device = device;
    this.segment = segment;
    this.segmentOffset = segmentOffset;
    this.size = size;
    this.whole = this;
  }

  private HostBuffer(HostBuffer whole, long segmentOffset, long size) {
    this.device = whole.device;
    this.segment = whole.segment;
    this.segmentOffset = segmentOffset;
    this.size = size;
    this.whole = whole;
  }

  @Override
  public HostDevice device() {
    return device;
  }

  @Override
  public long address() {
    return segment.address() + segmentOffset;
  }

  @Override
  public long size() {
    return size;
  }

  /** The segment that it is a part of. */
  public SharedSegment segment() {
    return segment;
  }

  /** Where in {@link #segment()} it begins, in bytes. */
  public long segmentOffset() {
    return segmentOffset;
  }

  /** Whether it, or the buffer that it is a slice of, was closed. */
  public boolean isClosed() {
    return whole.closed.get();
  }

  @Override
  public HostBuffer slice(long offset, long sliceSize) {
    checkRange("slice", offset, sliceSize);
    return new HostBuffer(whole, segmentOffset + offset, sliceSize);
  }

  @Override
  public void upload(long offset, ByteBuffer source) {
    int length = source.remaining();
    retain();
    try {
      checkRange("upload", offset, length);
      segment.view(segmentOffset + offset, length).put(source);
    } finally {
      release();
    }
  }

  @Override
  public void download(long offset, ByteBuffer target) {
    int length = target.remaining();
    retain();
    try {
      checkRange("download", offset, length);
      target.put(segment.view(segmentOffset + offset, length));
    } finally {
      release();
    }
  }

  @Override
  public void retain() {
    if (isClosed() || !segment.tryRetain()) {
      throw new InvalidUsage(this + " is closed");
    }
  }

  @Override
  public void release() {
    segment.release();
  }

  @Override
  public void close() {
    if (whole == this && closed.compareAndSet(false, true)) {
      device.whenEnqueuedWorkIsDone(segment::release);
    }
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
    return "HostBuffer(size=" + size + ", at " + segmentOffset + " of " + segment + ")";
  }
}
