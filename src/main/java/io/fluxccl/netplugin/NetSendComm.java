// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import java.util.concurrent.CompletableFuture;

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

  /**
   * Sends one message of a head and a body to a {@linkplain NetRecvComm#irecv(long, long,
   * NetMemory, BodyAddressResolver) receive that places bodies}. Supported only if {@link
   * NetPlugin#carriesBodies()}.
   *
   * @param head address of the head
   * @param headSize bytes of the head, 1 or more
   * @param memory the registration that holds the head
   * @param body address of the body: host memory, which needs no registration
   * @param bodySize bytes of the body; 0 for a message without one
   * @param more whether the caller sends another message at once; this message may wait for it
   * @return a request to be {@linkplain NetRequest#test tested} until done, or null if the caller
   *     must call again later
   * @throws io.fluxccl.InvalidUsage as {@link #isend(long, long, int, NetMemory)}, or if the
   *     network carries no bodies
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  default NetRequest isend(
      long head, long headSize, NetMemory memory, long body, long bodySize, boolean more) {
    throw new NetMisuse("the network carries no bodies");
  }

  /**
   * Asks whether the peer's system acknowledges what this end has sent. It does so even while the
   * peer's process is too busy to read.
   *
   * @return completes within milliseconds, on any thread; with false also if the network can't know
   */
  default CompletableFuture<Boolean> isAnswered() {
    return CompletableFuture.completedFuture(false);
  }
}
