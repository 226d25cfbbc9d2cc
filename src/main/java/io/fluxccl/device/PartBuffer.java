// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.UseCount;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A buffer that is a part of a larger piece of memory with a use count. Thread-safe.
 *
 * <p>Closing it releases the piece after the work enqueued so far is done, without waiting for it.
 *
 * @param <D> the device
 * @param <M> the larger piece
 */
@Experimental
public abstract class PartBuffer<D extends Device, M extends UseCount> implements DeviceBuffer {
  private final D device;
  private final M memory;
  private final long offset;
  private final long size;
  private final PartBuffer<D, M> whole;
  private final AtomicBoolean closed;

  /**
   * Takes over one use of the memory.
   *
   * @param device that it is on
   * @param memory that it is a part of
   * @param offset the offset of the part, in bytes
   * @param size its bytes
   */
  protected PartBuffer(D device, M memory, long offset, long size) {
    this.device = device;
    this.memory = memory;
    this.offset = offset;
    this.size = size;
    this.whole = this;
    this.closed = new AtomicBoolean();
  }

  /**
   * Creates a slice, which is closed with the whole.
   *
   * @param of a buffer or a slice
   * @param sliceOffset its offset in {@code of}, in bytes
   * @param size its bytes
   * @throws InvalidUsage if it does not lie within {@code of}
   */
  protected PartBuffer(PartBuffer<D, M> of, long sliceOffset, long size) {
    of.checkRange("slice", sliceOffset, size);
    this.device = of.device;
    this.memory = of.memory;
    this.offset = of.offset + sliceOffset;
    this.size = size;
    this.whole = of.whole;
    this.closed = whole.closed;
  }

  /** Returns the piece that it is a part of. */
  protected final M memory() {
    return memory;
  }

  /** Returns its offset in {@link #memory()}, in bytes. */
  protected final long memoryOffset() {
    return offset;
  }

  @Override
  public final D device() {
    return device;
  }

  @Override
  public final long size() {
    return size;
  }

  @Override
  public final boolean isClosed() {
    return closed.get();
  }

  @Override
  public final void retain() {
    if (isClosed() || !memory.tryRetain()) {
      throw new InvalidUsage(this + " is closed");
    }
  }

  @Override
  public final void release() {
    memory.release();
  }

  @Override
  public final void close() {
    if (whole == this && closed.compareAndSet(false, true)) {
      device.whenEnqueuedWorkIsDone(memory::release);
    }
  }

  /**
   * Refuses a range that does not lie within the buffer.
   *
   * @param what for the message
   * @throws InvalidUsage if it does not
   */
  public final void checkRange(String what, long offset, long length) {
    if (offset < 0 || length < 0 || offset > size - length) {
      throw InvalidUsage.of(
          "%s range offset=%s length=%s is outside the %s bytes of the buffer",
          what, offset, length, size);
    }
  }

  /**
   * Refuses bytes to copy that are null, big-endian, or more than the buffer has from an offset on.
   *
   * @param what the operation, for the message
   * @param name the parameter's name, for the message
   * @return how many bytes to copy
   * @throws InvalidUsage if they are
   */
  protected final int checkBytes(String what, String name, long offset, ByteBuffer bytes) {
    InvalidUsage.requireNonNull(bytes, what, name);
    if (bytes.order() == ByteOrder.BIG_ENDIAN && bytes.remaining() > 1) {
      throw InvalidUsage.of(
          "%s of %d bytes: the ByteBuffer is big-endian, which is Java's default, and device memory"
              + " is little-endian; set .order(ByteOrder.nativeOrder()) before you use its values,"
              + " or use a FloatView, an IntView or a byte[]",
          what, bytes.remaining());
    }
    checkRange(what, offset, bytes.remaining());
    return bytes.remaining();
  }

  @Override
  public final String toString() {
    return getClass().getSimpleName() + "(size=" + size + ", at " + offset + " of " + memory + ")";
  }
}
