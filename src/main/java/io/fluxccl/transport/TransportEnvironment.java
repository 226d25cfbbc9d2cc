// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import java.net.InetAddress;

/**
 * The properties of a communicator that its transports need.
 *
 * @param rank this rank
 * @param nRanks the number of ranks
 * @param hostHash this host's hash: equal on ranks that share a host
 * @param processHash this process's hash: equal on ranks that share a process
 * @param device the device whose memory this rank registers
 * @param hostAddress an IP address by which the other ranks reach this host
 */
@Experimental
public record TransportEnvironment(
    int rank, int nRanks, long hostHash, long processHash, Device device, InetAddress hostAddress) {
  /**
   * Checks that a rank exists.
   *
   * @param remoteRank the rank to connect to
   * @throws InvalidUsage if the communicator has no such rank
   */
  public void checkPeer(int remoteRank) {
    if (remoteRank < 0 || remoteRank >= nRanks) {
      throw InvalidUsage.of("remoteRank=%s; give 0 to %s", remoteRank, nRanks - 1);
    }
  }
}
