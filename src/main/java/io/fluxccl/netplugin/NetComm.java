// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/** One end of a connection. Used by one thread at a time. */
public interface NetComm extends AutoCloseable {
  /** Returns the number of the plugin's device that this end uses. */
  int device();

  /** Returns the address of the peer, for messages. */
  String peer();

  /**
   * Registers memory for this connection.
   *
   * @param address the address of its first byte, in host memory of this process or in CUDA memory
   * @param size bytes, 0 or more
   * @param type the kind of memory, one of {@link NetProperties#pointers()}
   * @return the registration, to be closed before the comm
   * @throws io.fluxccl.InvalidUsage if the device can't reach such memory
   * @throws io.fluxccl.TransportFailure if the system refuses the registration
   */
  NetMemory register(long address, long size, PointerType type);

  /**
   * Registers memory that a dma-buf describes.
   *
   * @param address the address of its first byte
   * @param size bytes
   * @param type the kind of memory
   * @param offset bytes from the dma-buf's start
   * @param fileDescriptor the dma-buf; remains the caller's
   * @return the registration, to be closed before the comm
   * @throws io.fluxccl.InvalidUsage if the device has no {@link PointerType#DMABUF}
   * @throws io.fluxccl.TransportFailure if the system refuses the registration
   */
  NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor);

  /** Closes this end and discards its requests in flight. Idempotent. */
  @Override
  void close();
}
