package io.fluxccl.netplugin;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;

/** A group of ranks whose network reduces, as one of them uses it: one thread at a time. */
public interface CollNetComm extends AutoCloseable {
  /**
   * Registers memory for this group.
   *
   * @param address where it begins
   * @param size bytes
   * @param type whose memory it is
   * @return the registration, to be closed before the group
   * @throws io.fluxccl.InvalidUsage if the device can't reach such memory
   */
  NetMemory register(long address, long size, PointerType type);

  /**
   * Reduces over all ranks, each of which gets the result.
   *
   * @param from the address of this rank's elements
   * @param to where the result goes
   * @param count elements, 1 or more
   * @param type of the elements
   * @param op how they are reduced
   * @param fromMemory the registration that holds this rank's elements
   * @param toMemory the registration where the result goes
   * @return to be {@linkplain NetRequest#test tested} until done, or null: not now, call again
   * @throws io.fluxccl.InvalidUsage if a memory is not registered here or too small, or the network
   *     can't reduce so
   * @throws io.fluxccl.FluxCclException if the group has failed
   */
  NetRequest iallreduce(
      long from,
      long to,
      long count,
      DataType type,
      ReduceOp op,
      NetMemory fromMemory,
      NetMemory toMemory);

  /**
   * Makes a result in CUDA memory visible to the GPU.
   *
   * @param address where it begins
   * @param size bytes
   * @param memory the registration that holds it
   * @return to be tested until done, or null when there is nothing to wait for
   * @throws io.fluxccl.FluxCclException if the group has failed
   */
  NetRequest iflush(long address, long size, NetMemory memory);

  /** Leaves the group; requests in flight are lost. Idempotent. */
  @Override
  void close();
}
