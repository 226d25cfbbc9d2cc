// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import java.util.List;

/**
 * A network that reduces data in its switches, as NCCL's interface for collective networks defines
 * it. Some network plugins offer one in addition to their {@link NetPlugin}. It works like a {@link
 * NetPlugin}, with a group of ranks in place of a connection.
 *
 * <p>Any thread may call the plugin itself. A group and its requests are used by one thread at a
 * time.
 */
public interface CollNetPlugin extends AutoCloseable {
  /** Returns the network's name. */
  String name();

  /** Returns the number of devices that can reduce, 1 or more. */
  int devices();

  /**
   * Returns the properties of a device.
   *
   * @param device 0 to {@link #devices()} - 1
   * @return its properties
   * @throws io.fluxccl.InvalidUsage if there is no such device
   */
  NetProperties properties(int device);

  /**
   * Starts to listen for a group.
   *
   * @param device the device to listen on
   * @return the listener; its handle is to be sent to the other ranks
   * @throws io.fluxccl.TransportFailure if the network can't listen
   */
  CollNetListener listen(int device);

  /**
   * Joins a group. Unlike {@link NetPlugin#connect}, this call may block until the other ranks
   * join.
   *
   * @param handles the {@link CollNetListener#handle()} of every rank, in order
   * @param rank the index of this rank in the handles
   * @param listener the listener of this rank
   * @return this rank's end of the group
   * @throws io.fluxccl.InvalidUsage if the rank is not an index of the handles
   * @throws io.fluxccl.FluxCclException if the group can't be formed
   */
  CollNetComm connect(List<byte[]> handles, int rank, CollNetListener listener);

  /** Returns whether the network can reduce elements of a type with an operation. */
  boolean reduces(DataType type, ReduceOp op);

  /** Closes the network with its open groups and listeners. Idempotent; later calls are refused. */
  @Override
  void close();
}
