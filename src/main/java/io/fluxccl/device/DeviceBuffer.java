// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.InvalidUsage;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Optional;

/**
 * A range of a device's memory. Little-endian. Kernels do not check its bounds; all other
 * operations do.
 *
 * <p>The memory exists until its last user has released it. Users are the buffer itself and every
 * registration of it.
 */
public interface DeviceBuffer extends AutoCloseable {
  /** Returns the device it is on. */
  Device device();

  /** Returns the address by which kernels of this process reach it. */
  long address();

  /** Returns its length in bytes. */
  long size();

  /** Returns whether this buffer, or the one that it is a slice of, was closed. */
  boolean isClosed();

  /**
   * Returns a part of this buffer that shares its memory. Closing the part does nothing.
   *
   * @param offset bytes from the start, 0 to size
   * @param size bytes
   * @return the part
   * @throws InvalidUsage if the part does not lie within the buffer
   */
  DeviceBuffer slice(long offset, long size);

  /**
   * Returns this memory itself, if host threads can access it, as on the host device. Don't use it
   * after this buffer is closed: the memory may then be unmapped, and the JVM would crash.
   *
   * @return little-endian, from position 0 to {@link #size()}; empty if the memory is a GPU's, or
   *     was wrapped by its address
   * @throws InvalidUsage if it is closed
   */
  default Optional<ByteBuffer> asByteBuffer() {
    return Optional.empty();
  }

  /**
   * Returns why other ranks can't map this memory, which can happen if the library did not allocate
   * it; empty otherwise. Collectives copy such memory through staging buffers.
   *
   * @throws InvalidUsage if it is closed, or was freed by its owner
   */
  default Optional<String> unshareableReason() {
    return Optional.empty();
  }

  /**
   * Returns {@link #unshareableReason}.
   *
   * @deprecated Use {@link #unshareableReason}.
   */
  @Deprecated
  default Optional<String> unshareableBecause() {
    return unshareableReason();
  }

  /**
   * Copies the remaining bytes of {@code source} to this buffer and returns when they are there.
   * Not ordered with streams: wait for their work first.
   *
   * <p>Java buffers are big-endian by default, and this memory is little-endian. A big-endian
   * buffer of more than one byte is refused, because its values would silently change. Set {@code
   * .order(ByteOrder.nativeOrder())} before you put values into it. For values of one type a {@link
   * DeviceView} is simpler, for plain bytes {@link #upload(long, byte[])}.
   *
   * @param offset bytes from the start
   * @param source little-endian; its position is moved to its limit
   * @throws InvalidUsage if they do not fit, or the source is big-endian
   */
  void upload(long offset, ByteBuffer source);

  /** Copies an array's bytes to this buffer; otherwise as {@link #upload(long, ByteBuffer)}. */
  default void upload(long offset, byte[] source) {
    InvalidUsage.requireNonNull(source, "upload", "source");
    upload(offset, ByteBuffer.wrap(source).order(ByteOrder.LITTLE_ENDIAN));
  }

  /**
   * Fills {@code target} from this buffer and returns when the bytes are there. Not ordered with
   * streams.
   *
   * @param offset bytes from the start
   * @param target little-endian, as the source of {@link #upload(long, ByteBuffer)}; its position
   *     is moved to its limit
   * @throws InvalidUsage if the bytes lie outside the buffer, or the target is big-endian
   */
  void download(long offset, ByteBuffer target);

  /** Fills an array from this buffer; otherwise as {@link #download(long, ByteBuffer)}. */
  default void download(long offset, byte[] target) {
    InvalidUsage.requireNonNull(target, "download", "target");
    download(offset, ByteBuffer.wrap(target).order(ByteOrder.LITTLE_ENDIAN));
  }

  /**
   * Exports this memory for other devices. The dma-buf consists of whole pages, so it may include
   * neighbouring memory.
   *
   * @return the dma-buf, which the caller closes; empty if the device does not {@linkplain
   *     Device#exportsDmaBufs export any}
   * @throws io.fluxccl.DeviceFailure if the driver can't export this memory
   */
  default Optional<DmaBuf> exportDmaBuf() {
    return Optional.empty();
  }

  /**
   * Adds a user of the memory, which then stays until the matching {@link #release()} even if this
   * buffer is closed before.
   *
   * @throws InvalidUsage if this buffer is closed
   */
  void retain();

  /** Removes a user that {@link #retain()} added. */
  void release();

  /** Releases the memory once work already enqueued on the device's streams is done. Idempotent. */
  @Override
  void close();
}
