// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.PeerConnections;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;

/**
 * A network that reduces data itself, along the rails between hosts. {@link ServiceLoader} finds
 * it: the jar {@code fluxccl-nccl} has one.
 */
public interface RailNetwork {
  /** The environment variable, NCCL's, that allows such networks if it is 1. */
  String VARIABLE = "NCCL_COLLNET_ENABLE";

  /** The system property that allows such networks if it is 1. */
  String PROPERTY = "fluxccl.collnet";

  /** Returns whether the user allows such networks. */
  static boolean isAllowed() {
    return "1".equals(System.getProperty(PROPERTY, System.getenv(VARIABLE)));
  }

  /** Returns the network on the class path, or empty. */
  static Optional<RailNetwork> find() {
    return ServiceLoader.load(RailNetwork.class, RailNetwork.class.getClassLoader()).findFirst();
  }

  /**
   * Opens this rank's groups together with all ranks: for each lane one group of the ranks of its
   * rail. All ranks have them, or none.
   *
   * @param peers the lane's connections
   * @param rail the ranks of this rank's rail, in the order of their hosts
   * @param railIndex this rank's place in the rail
   * @param lanes the number of lanes, on all ranks the same
   * @param slotBytes the most bytes of a piece
   * @return the groups, or empty if a rank can't have them, which rank 0 logs
   */
  CompletableFuture<Optional<Groups>> open(
      PeerConnections peers, int[] rail, int railIndex, int lanes, int slotBytes);

  /** The groups of one rank, one for each lane. */
  interface Groups extends AutoCloseable {
    /** Returns whether the network combines elements of a type, on every rank. */
    boolean reduces(DataType type, ReduceOp op);

    /** Returns the group of a lane. */
    Lane lane(int number);

    @Override
    void close();
  }

  /**
   * The group of one lane, with slots for the pieces in flight. Used by the lane's thread, in the
   * same order on all ranks of the group. Allocates nothing.
   */
  interface Lane {
    /** The most pieces in flight. */
    int SLOTS = 4;

    /** Returns the address for the next piece's input. */
    long nextInput();

    /**
     * Gives the next piece to the network.
     *
     * @return false if the communicator was aborted
     */
    boolean post(long count, DataType type, ReduceOp op);

    /**
     * Waits for the oldest piece's result.
     *
     * @return its address, valid until as many further pieces are posted as there are slots; 0 if
     *     the communicator was aborted
     */
    long take();
  }
}
