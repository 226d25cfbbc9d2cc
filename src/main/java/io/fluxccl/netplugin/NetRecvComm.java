package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;

/** The end that receives. */
public interface NetRecvComm extends NetComm {
  /**
   * Receives one message.
   *
   * @param address where its first byte goes
   * @param size bytes there, at least as many as are sent
   * @param tag as the sender's; 0 where there are no groups
   * @param memory the registration that holds it
   * @return to be {@linkplain NetRequest#test tested} until done, or null: not now, call again
   * @throws io.fluxccl.InvalidUsage if the memory is not registered here or too small, or more are
   *     in flight than allowed
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest irecv(long address, long size, int tag, NetMemory memory);

  /**
   * Receives one message whose body, if it has one, goes where {@code place} says. Waits for the
   * message without a time limit. Only where {@link NetPlugin#carriesBodies()}.
   *
   * @param head where the head goes
   * @param room bytes there, at least as many as the head has
   * @param memory the registration that holds the head
   * @param place chooses where the body goes
   * @return to be {@linkplain NetRequest#test tested} until done, or null: not now, call again; its
   *     size is the head's
   * @throws io.fluxccl.InvalidUsage as {@link #irecv(long, long, int, NetMemory)}, or if the
   *     network carries no bodies
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  default NetRequest irecv(long head, long room, NetMemory memory, BodyPlace place) {
    throw new InvalidUsage("the network carries no bodies");
  }

  /**
   * Receives a group of messages, told apart by their tags; done when all are there. The arrays are
   * the caller's again when this returns.
   *
   * @param n how many, 1 to {@link NetProperties#maxRecvs()}
   * @param addresses n addresses
   * @param sizes n sizes in bytes
   * @param tags n tags, all different
   * @param memories n registrations
   * @return to be {@linkplain NetRequest#test tested} until done, or null: not now, call again
   * @throws io.fluxccl.InvalidUsage as {@link #irecv(long, long, int, NetMemory)}, and if n is too
   *     large
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest irecv(int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories);

  /**
   * Makes what was received into CUDA memory visible to the GPU.
   *
   * @param n how many ranges
   * @param addresses n addresses
   * @param sizes n sizes in bytes
   * @param memories n registrations
   * @return to be {@linkplain NetRequest#test tested} until done, or null when there is nothing to
   *     wait for
   * @throws io.fluxccl.FluxCclException if the connection has failed
   */
  NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories);
}
