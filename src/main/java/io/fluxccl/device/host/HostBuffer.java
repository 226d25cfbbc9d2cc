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
    super(device, range, range.address(), offset, size);
  }

  private HostBuffer(HostBuffer of, long offset, long size) {
    super(of, offset, size);
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
    return use(() -> memory().asByteBuffer(memoryOffset(), size()));
  }

  @Override
  protected void copyIn(long targetAddress, ByteBuffer source) {
    int length = source.remaining();
    new UnsafeBuffer(targetAddress, length).putBytes(0, source, length);
  }

  @Override
  protected void copyOut(long sourceAddress, ByteBuffer target) {
    int length = target.remaining();
    new UnsafeBuffer(sourceAddress, length).getBytes(0, target, length);
  }
}
