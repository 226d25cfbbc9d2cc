// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.device.PartBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Optional;

/**
 * A part of a {@link SharedSegment}, or memory that was wrapped. Thread-safe.
 *
 * <p>Closing it releases the segment once the work that was enqueued before is done, without
 * waiting for it. A user beyond that, such as a registration, retains the {@link #segment()}.
 */
@Experimental
public final class HostBuffer extends PartBuffer<HostDevice, HostRange> {
  /** Takes over one user of the range. */
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

  /** Returns the segment that it is a part of; null for memory that was wrapped. */
  public SharedSegment segment() {
    return memory() instanceof SharedSegment segment ? segment : null;
  }

  @Override
  public Optional<String> unshareableBecause() {
    return segment() != null
        ? Optional.empty()
        : Optional.of(
            "memory that the host device did not allocate can't be mapped by other processes");
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
      return memory()
          .asByteBuffer(memoryOffset(), size())
          .map(bytes -> bytes.order(ByteOrder.LITTLE_ENDIAN));
    } finally {
      release();
    }
  }

  @Override
  public void upload(long offset, ByteBuffer source) {
    retain();
    try {
      checkBytes("upload", "source", offset, source);
      memory().put(memoryOffset() + offset, source);
    } finally {
      release();
    }
  }

  @Override
  public void download(long offset, ByteBuffer target) {
    retain();
    try {
      checkBytes("download", "target", offset, target);
      memory().get(memoryOffset() + offset, target);
    } finally {
      release();
    }
  }
}
