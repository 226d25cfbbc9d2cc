package io.fluxccl.netplugin;

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
}
