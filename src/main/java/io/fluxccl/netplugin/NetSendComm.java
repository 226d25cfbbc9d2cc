package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;

/** The end that sends. */
public interface NetSendComm extends NetComm {
  /**
   * Sends one message.
   *
   * @param address of its first byte
   * @param size bytes, 0 or more
   * @param tag which receive of a group it is for; 0 where there are no groups
   * @param memory the registration that holds it
   * @return to be {@linkplain NetRequest#test tested} until done, or null: not now, call again
   * @throws io.fluxccl.InvalidUsage if the memory is not registered here or too small, or more are
   *     in flight than allowed
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest isend(long address, long size, int tag, NetMemory memory);

  /**
   * Sends one message of a head and a body to a {@linkplain NetRecvComm#irecv(long, long,
   * NetMemory, BodyPlace) receive that places bodies}. Only where {@link
   * NetPlugin#carriesBodies()}.
   *
   * @param head address of the head
   * @param headSize bytes of the head, 1 or more
   * @param memory the registration that holds the head
   * @param body address of the body: host memory, which needs no registration
   * @param bodySize bytes of the body; 0 for a message without one
   * @param more whether the caller sends another message at once, for which this one may wait
   * @return to be {@linkplain NetRequest#test tested} until done, or null: not now, call again
   * @throws io.fluxccl.InvalidUsage as {@link #isend(long, long, int, NetMemory)}, or if the
   *     network carries no bodies
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  default NetRequest isend(
      long head, long headSize, NetMemory memory, long body, long bodySize, boolean more) {
    throw new InvalidUsage("the network carries no bodies");
  }
}
