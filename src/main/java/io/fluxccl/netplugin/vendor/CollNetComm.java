// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;

/** One rank's end of a group whose network reduces data. Used by one thread at a time. */
public interface CollNetComm extends AutoCloseable {
  /**
   * Registers memory for this group.
   *
   * @param address the address of its first byte
   * @param size bytes
   * @param type the kind of memory
   * @return the registration, to be closed before the group
   * @throws io.fluxccl.InvalidUsage if the device can't reach such memory
   */
  NetMemory register(long address, long size, PointerType type);

  /**
   * Reduces the elements of all ranks; each rank receives the result.
   *
   * @param from the address of this rank's elements
   * @param to the address for the result
   * @param count elements, 1 or more
   * @param type the type of the elements
   * @param op the reduce operation
   * @param fromMemory the registration that contains this rank's elements
   * @param toMemory the registration that contains the range of the result
   * @return a request to be {@linkplain NetRequest#test tested} until done, or null if the caller
   *     must call again later
   * @throws io.fluxccl.InvalidUsage if a memory is not registered here or too small, or the network
   *     does not support this reduction
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
   * @param address the address of its first byte
   * @param size bytes
   * @param memory the registration that contains the result
   * @return a request to be tested until done, or null if no wait is needed
   * @throws io.fluxccl.FluxCclException if the group has failed
   */
  NetRequest iflush(long address, long size, NetMemory memory);

  /** Leaves the group and discards its requests in flight. Idempotent. */
  @Override
  void close();
}
