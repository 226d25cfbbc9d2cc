package io.fluxccl.device.host;

import io.fluxccl.device.PartBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Optional;

/**
 * A part of a {@link SharedSegment}. Thread-safe.
 *
 * <p>Closing it releases the segment once the work that was enqueued before is done, without
 * waiting for it. A user beyond that, such as a registration, retains the {@link #segment()}.
 */
public final class HostBuffer extends PartBuffer<HostDevice, SharedSegment> {
  /** Takes over one user of the segment. */
  HostBuffer(HostDevice device, SharedSegment segment, long segmentOffset, long size) {
    super(device, segment, segmentOffset, size);
  }

  private HostBuffer(HostBuffer of, long offset, long size) {
    super(of, offset, size);
  }

  @Override
  public long address() {
    return memory().address() + memoryOffset();
  }

  /** Returns the segment that it is a part of. */
  public SharedSegment segment() {
    return memory();
  }

  /** Returns where in {@link #segment()} it begins, in bytes. */
  public long segmentOffset() {
    return memoryOffset();
  }

  @Override
  public HostBuffer slice(long offset, long sliceSize) {
    return new HostBuffer(this, offset, sliceSize);
  }

  @Override
  public Optional<ByteBuffer> asByteBuffer() {
    retain();
    try {
      ByteBuffer bytes = memory().view(memoryOffset(), size()).slice();
      return Optional.of(bytes.order(ByteOrder.LITTLE_ENDIAN));
    } finally {
      release();
    }
  }

  @Override
  public void upload(long offset, ByteBuffer source) {
    retain();
    try {
      int length = checkBytes("upload", "source", offset, source);
      memory().view(memoryOffset() + offset, length).put(source);
    } finally {
      release();
    }
  }

  @Override
  public void download(long offset, ByteBuffer target) {
    retain();
    try {
      int length = checkBytes("download", "target", offset, target);
      target.put(memory().view(memoryOffset() + offset, length));
    } finally {
      release();
    }
  }
}
