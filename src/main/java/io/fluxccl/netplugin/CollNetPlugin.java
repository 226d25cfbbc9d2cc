package io.fluxccl.netplugin;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import java.util.List;

/**
 * A network that reduces by itself, in its switches, as NCCL sees one: what some network plugins
 * have besides. As {@link NetPlugin} is, but a group of ranks takes the place of a connection.
 *
 * <p>The plugin itself may be called by any thread; a group and its requests by one at a time.
 */
public interface CollNetPlugin extends AutoCloseable {
  /** The network's name. */
  String name();

  /** How many devices can reduce, 1 or more. */
  int devices();

  /**
   * What a device is.
   *
   * @param device 0 to {@link #devices()} - 1
   * @return its properties
   * @throws io.fluxccl.InvalidUsage if there is no such device
   */
  NetProperties properties(int device);

  /**
   * Prepares to be in a group.
   *
   * @param device on which
   * @return what is to be told to the other ranks
   * @throws io.fluxccl.TransportFailure if it can't listen
   */
  CollNetListener listen(int device);

  /**
   * Joins a group. Unlike a connection, this may wait for the other ranks.
   *
   * @param handles the {@link CollNetListener#handle()} of every rank, in order
   * @param rank which of them is this one
   * @param listener this rank's
   * @return the group, as this rank uses it
   * @throws io.fluxccl.InvalidUsage if the rank is none of them
   * @throws io.fluxccl.FluxCclException if the group can't be made
   */
  CollNetComm connect(List<byte[]> handles, int rank, CollNetListener listener);

  /** Whether the network can reduce such elements in such a way. */
  boolean reduces(DataType type, ReduceOp op);

  /** Ends it: closes what is still open. Idempotent; further calls are refused. */
  @Override
  void close();
}
