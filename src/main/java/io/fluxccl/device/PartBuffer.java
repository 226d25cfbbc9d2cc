// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.UseCount;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.Supplier;

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
  private final long address;
  private final long offset;
  private final long size;
  private final PartBuffer<D, M> whole;
  private final Lifecycle lifecycle;

  /**
   * Takes over one use of the memory.
   *
   * @param device that it is on
   * @param memory that it is a part of
   * @param memoryAddress the address of the memory's first byte
   * @param offset the offset of the part, in bytes
   * @param size its bytes
   */
  protected PartBuffer(D device, M memory, long memoryAddress, long offset, long size) {
    this.device = device;
    this.memory = memory;
    this.address = memoryAddress + offset;
    this.offset = offset;
    this.size = size;
    this.whole = this;
    this.lifecycle = new Lifecycle(this);
    lifecycle.own(() -> device.whenEnqueuedWorkIsDone(memory::release));
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
    this.address = of.address + sliceOffset;
    this.offset = of.offset + sliceOffset;
    this.size = size;
    this.whole = of.whole;
    this.lifecycle = whole.lifecycle;
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
  public final long address() {
    return address;
  }

  @Override
  public final long size() {
    return size;
  }

  @Override
  public final boolean isClosed() {
    return lifecycle.isClosed();
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

  /** Returns the result of a call during which this buffer is a user of the memory. */
  protected final <T> T use(Supplier<T> call) {
    retain();
    try {
      return call.get();
    } finally {
      release();
    }
  }

  /** Copies all remaining bytes to this memory and returns when they are there. */
  protected abstract void copyIn(long targetAddress, ByteBuffer source);

  /** Fills the remaining bytes from this memory and returns when they are there. */
  protected abstract void copyOut(long sourceAddress, ByteBuffer target);

  @Override
  public final void upload(long target, ByteBuffer source) {
    use(
        () -> {
          checkBytes("upload", "source", target, source);
          copyIn(address + target, source);
          return null;
        });
  }

  @Override
  public final void download(long source, ByteBuffer target) {
    use(
        () -> {
          checkBytes("download", "target", source, target);
          copyOut(address + source, target);
          return null;
        });
  }

  @Override
  public final void close() {
    if (whole == this) {
      lifecycle.close();
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

  /** Refuses bytes that are null, big-endian, or more than the buffer has from an offset on. */
  private void checkBytes(String what, String name, long from, ByteBuffer bytes) {
    InvalidUsage.requireNonNull(bytes, what, name);
    if (bytes.order() == ByteOrder.BIG_ENDIAN && bytes.remaining() > 1) {
      throw InvalidUsage.of(
          "%s of %d bytes: the ByteBuffer is big-endian, which is Java's default, and device memory"
              + " is little-endian; set .order(ByteOrder.nativeOrder()) before you use its values,"
              + " or use a FloatView, an IntView or a byte[]",
          what, bytes.remaining());
    }
    checkRange(what, from, bytes.remaining());
  }

  @Override
  public final String toString() {
    return getClass().getSimpleName() + "(size=" + size + ", at " + offset + " of " + memory + ")";
  }
}
