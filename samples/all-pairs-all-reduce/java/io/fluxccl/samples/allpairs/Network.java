// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.ib.IbTransport;
import java.util.stream.IntStream;

/**
 * The transport of bytes if memory can't be mapped.
 *
 * @param kind TCP, or the RDMA devices
 * @param evenWithinHosts whether ranks of one host use it, too
 */
record Network(Kind kind, boolean evenWithinHosts) {
  /** The networks that this sample knows. */
  enum Kind {
    ETHERNET,
    IB
  }

  /**
   * Returns the transport from this rank to a peer. Every host must have the same number of RDMA
   * devices; the local ranks of the pair then select the same one at both ends.
   */
  Transport between(Bootstrap bootstrap, int peer) {
    return kind == Kind.ETHERNET
        ? Transport.ETHERNET
        : Transport.rankToIbDevice(
            localRank(bootstrap, bootstrap.rank()),
            localRank(bootstrap, peer),
            IbTransport.getIbDeviceCount());
  }

  /** Returns how many ranks of the same host come before a rank. */
  private static int localRank(Bootstrap bootstrap, int rank) {
    return (int)
        IntStream.range(0, rank)
            .filter(other -> bootstrap.hostHash(other) == bootstrap.hostHash(rank))
            .count();
  }
}
