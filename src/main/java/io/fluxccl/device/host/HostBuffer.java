// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.device.PartBuffer;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A part of a {@link SharedSegment}, or wrapped memory. Thread-safe.
 *
 * <p>Closing it releases the segment after the work enqueued so far is done, without waiting for
 * it. Other users, such as a registration, retain the {@link #segment()}.
 */
@Experimental
public final class HostBuffer extends PartBuffer<HostDevice, HostRange> {
  /** Takes over one use of the range. */
  HostBuffer(HostDevice device, HostRange range, long offset, long size) {
    super(device, range, offset, size);
  }

  private HostBuffer(HostBuffer of, long offset, long size) {
    super(of, offset, size);
  }

  @Override
  public long address() {
    return memory().address() + memoryOffset();
  }

  /** Returns the segment that contains it; null for wrapped memory. */
  public SharedSegment segment() {
    return memory() instanceof SharedSegment segment ? segment : null;
  }

  @Override
  public Optional<String> unshareableReason() {
    return segment() != null
        ? Optional.empty()
        : Optional.of(
            "memory that the host device did not allocate can't be mapped by other processes");
  }

  /** Returns its offset in {@link #segment()}, in bytes. */
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
      return memory().asByteBuffer(memoryOffset(), size());
    } finally {
      release();
    }
  }

  @Override
  public void upload(long offset, ByteBuffer source) {
    retain();
    try {
      int length = checkBytes("upload", "source", offset, source);
      new UnsafeBuffer(address() + offset, length).putBytes(0, source, length);
    } finally {
      release();
    }
  }

  @Override
  public void download(long offset, ByteBuffer target) {
    retain();
    try {
      int length = checkBytes("download", "target", offset, target);
      new UnsafeBuffer(address() + offset, length).getBytes(0, target, length);
    } finally {
      release();
    }
  }
}
