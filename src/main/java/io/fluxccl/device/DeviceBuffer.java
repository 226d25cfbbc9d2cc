// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.InvalidUsage;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Optional;

/**
 * A range of a device's memory. Little-endian. Not bounds-checked by kernels; checked by everything
 * else.
 *
 * <p>The memory lives until its last user has released it: users are the buffer itself and every
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
   * Returns this memory itself, where host threads can access it: a device on the host. Not to be
   * used after this buffer is closed, because the memory may then no longer be mapped, and the JVM
   * would crash.
   *
   * @return little-endian, from position 0 to {@link #size()}; empty if the memory is a GPU's, or
   *     was wrapped by its address
   * @throws InvalidUsage if it is closed
   */
  default Optional<ByteBuffer> asByteBuffer() {
    return Optional.empty();
  }

  /**
   * Returns why other ranks can't map this memory, as may be with memory that the library did not
   * allocate; empty for its own. Collectives copy such memory through the library's own.
   *
   * @throws InvalidUsage if it is closed, or was freed by its owner
   */
  default Optional<String> unshareableBecause() {
    return Optional.empty();
  }

  /**
   * Copies the remaining bytes of {@code source} to this buffer and returns when they are there.
   * Not ordered with streams: wait for their work first.
   *
   * <p>Buffers of Java are big-endian unless told otherwise, and this memory is little-endian. So
   * that floats don't turn into other numbers without a word, a big-endian buffer of more than one
   * byte is refused. Set {@code .order(ByteOrder.nativeOrder())} before you put values into it. For
   * values of one type a {@link DeviceView} is simpler, for plain bytes {@link #upload(long,
   * byte[])}.
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
   * @throws InvalidUsage if the buffer has not so many bytes, or the target is big-endian
   */
  void download(long offset, ByteBuffer target);

  /** Fills an array from this buffer; otherwise as {@link #download(long, ByteBuffer)}. */
  default void download(long offset, byte[] target) {
    InvalidUsage.requireNonNull(target, "download", "target");
    download(offset, ByteBuffer.wrap(target).order(ByteOrder.LITTLE_ENDIAN));
  }

  /**
   * Exports this memory for other devices. Its pages belong to the dma-buf together with their
   * neighbours.
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
