// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/** The receiving end of a connection. */
public interface NetRecvComm extends NetComm {
  /**
   * Receives one message.
   *
   * @param address the address for its first byte
   * @param size bytes of room at the address, at least as many as are sent
   * @param tag the sender's tag; 0 if the network has no groups
   * @param memory the registration that contains the range
   * @return a request to be {@linkplain NetRequest#test tested} until done, or null if the caller
   *     must call again later
   * @throws io.fluxccl.InvalidUsage if the memory is not registered here or too small, or too many
   *     requests are in flight
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest irecv(long address, long size, int tag, NetMemory memory);

  /**
   * Receives a group of messages, which their tags identify. A message belongs to the oldest
   * receive with its tag, in a group or not. The request is done when all messages have arrived.
   * The caller may reuse the arrays when this returns.
   *
   * @param n the number of messages, 1 to {@link NetProperties#maxRecvs()}
   * @param addresses n addresses
   * @param sizes n sizes in bytes
   * @param tags n tags, all different
   * @param memories n registrations
   * @return a request to be {@linkplain NetRequest#test tested} until done, or null if the caller
   *     must call again later
   * @throws io.fluxccl.InvalidUsage as {@link #irecv(long, long, int, NetMemory)}, and if n is too
   *     large
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest irecv(int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories);

  /**
   * Makes received data in CUDA memory visible to the GPU.
   *
   * @param n the number of ranges
   * @param addresses n addresses
   * @param sizes n sizes in bytes
   * @param memories n registrations
   * @return a request to be {@linkplain NetRequest#test tested} until done, or null if no wait is
   *     needed
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories);
}
