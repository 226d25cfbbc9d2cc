// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;

/** The ways in which bytes can move between two ranks. */
public enum Transport {
  /** Shared memory of one host; for memory of the host device. */
  SHM,
  /** CUDA IPC: GPUs of one host that can reach each other. */
  CUDA_IPC,
  /** RDMA device 0 of this machine. */
  IB0,
  /** RDMA device 1 of this machine. */
  IB1,
  /** RDMA device 2 of this machine. */
  IB2,
  /** RDMA device 3 of this machine. */
  IB3,
  /** RDMA device 4 of this machine. */
  IB4,
  /** RDMA device 5 of this machine. */
  IB5,
  /** RDMA device 6 of this machine. */
  IB6,
  /** RDMA device 7 of this machine. */
  IB7,
  /** TCP sockets. */
  ETHERNET,
  /** A network plugin with NCCL's interface. */
  NET;

  /**
   * Returns the RDMA device for a pair of ranks. The traffic of a host is spread over its devices.
   * Both ends choose the same device index, which is the same rail.
   *
   * @param localRank the local rank of one end on its host
   * @param remoteLocalRank the local rank of the other end on its host
   * @param devices the number of devices of every host, 1 to 8
   * @return IB0 to IB7
   */
  @Experimental
  public static Transport rankToIbDevice(int localRank, int remoteLocalRank, int devices) {
    int most = ETHERNET.ordinal() - IB0.ordinal();
    if (devices < 1 || devices > most) {
      throw InvalidUsage.of("devices=%s; give 1 to %s", devices, most);
    }
    if (localRank < 0 || remoteLocalRank < 0) {
      throw InvalidUsage.of(
          "localRank=%s, remoteLocalRank=%s; give 0 or more", localRank, remoteLocalRank);
    }
    // Hierarchical collectives connect ranks with equal local ranks; these pairs use all rails.
    int rail = localRank == remoteLocalRank ? localRank : localRank + remoteLocalRank;
    return values()[IB0.ordinal() + rail % devices];
  }
}
