package io.fluxccl.netplugin;

/** One end of a connection. Used by one thread at a time. */
public interface NetComm extends AutoCloseable {
  /** The plugin's device that it uses. */
  int device();

  /** Whom it is connected to, for messages: an address. */
  String peer();

  /**
   * Registers memory for this connection.
   *
   * @param address where it begins, of this process (host) or of CUDA
   * @param size bytes, 0 or more
   * @param type whose memory it is; one of those that {@link NetProperties#pointers()} names
   * @return the registration, to be closed before the comm
   * @throws io.fluxccl.InvalidUsage if the device can't reach such memory
   * @throws io.fluxccl.TransportFailure if the system refuses
   */
  NetMemory register(long address, long size, PointerType type);

  /**
   * Registers memory that a dma-buf describes.
   *
   * @param address where it begins
   * @param size bytes
   * @param type whose memory it is
   * @param offset bytes from the dma-buf's start
   * @param fileDescriptor the dma-buf; remains the caller's
   * @return the registration, to be closed before the comm
   * @throws io.fluxccl.InvalidUsage if the device has no {@link PointerType#DMABUF}
   * @throws io.fluxccl.TransportFailure if the system refuses
   */
  NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor);

  /**
   * Has a waiter's sleep end when this end may go on; called once, before the first request.
   *
   * @param waiter of the thread that uses this end
   * @return false if this end can only be polled
   */
  default boolean watchedBy(NetWaiter waiter) {
    return false;
  }

  /** Closes this end; requests in flight are lost. Idempotent. */
  @Override
  void close();
}
