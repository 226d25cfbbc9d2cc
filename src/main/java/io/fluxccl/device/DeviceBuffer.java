package io.fluxccl.device;

import java.nio.ByteBuffer;

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
   * @throws io.fluxccl.InvalidUsage if the part does not lie within the buffer
   */
  DeviceBuffer slice(long offset, long size);

  /**
   * Copies the remaining bytes of {@code source} to this buffer and returns when they are there.
   * Not ordered with streams: wait for their work first.
   *
   * @param offset bytes from the start
   * @param source its position is moved to its limit
   * @throws io.fluxccl.InvalidUsage if they do not fit
   */
  void upload(long offset, ByteBuffer source);

  /**
   * Fills {@code target} from this buffer and returns when the bytes are there. Not ordered with
   * streams.
   *
   * @param offset bytes from the start
   * @param target its position is moved to its limit
   * @throws io.fluxccl.InvalidUsage if the buffer has not so many bytes
   */
  void download(long offset, ByteBuffer target);

  /**
   * Adds a user of the memory, which then stays until the matching {@link #release()} even if this
   * buffer is closed before.
   *
   * @throws io.fluxccl.InvalidUsage if this buffer is closed
   */
  void retain();

  /** Removes a user that {@link #retain()} added. */
  void release();

  /** Releases the memory once work already enqueued on the device's streams is done. Idempotent. */
  @Override
  void close();
}
