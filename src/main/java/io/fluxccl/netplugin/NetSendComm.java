// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

/** The sending end of a connection. */
public interface NetSendComm extends NetComm {
  /**
   * Sends one message.
   *
   * @param address the address of its first byte
   * @param size bytes, 0 or more
   * @param tag identifies the receive in its group; 0 if the network has no groups
   * @param memory the registration that contains the message
   * @return a request to be {@linkplain NetRequest#test tested} until done, or null if the caller
   *     must call again later
   * @throws io.fluxccl.InvalidUsage if the memory is not registered here or too small, or too many
   *     requests are in flight
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest isend(long address, long size, int tag, NetMemory memory);
}
