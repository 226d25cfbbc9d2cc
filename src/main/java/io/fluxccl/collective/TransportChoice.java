// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;

/**
 * The choice of the transport between two ranks. It is the requested one, or else mapped memory
 * within a host. Between hosts it is RDMA if both ends can use it, else ETHERNET. It depends only
 * on the descriptions of the two ranks, and not on their order, so both choose the same.
 *
 * @param only the transport asked for
 * @param networks those that may be used between hosts
 */
record TransportChoice(Optional<Transport> only, TransportFlags networks) {

  static TransportChoice of(CollectivesOptions options) {
    return new TransportChoice(options.transport(), options.networks());
  }

  /** Returns the transport between ranks of one host. */
  static Transport local(DeviceKind kind) {
    return kind == DeviceKind.CUDA ? Transport.CUDA_IPC : Transport.SHM;
  }

  /**
   * Returns the networks by which other hosts can reach this rank's memory, for its description.
   * None if all ranks are on one host, where networks are not used. May block: it looks for
   * devices.
   */
  TransportFlags usable(Communicator communicator) {
    Bootstrap bootstrap = communicator.bootstrap();
    boolean oneHost =
        IntStream.range(0, bootstrap.nRanks())
            .allMatch(peer -> bootstrap.hostHash(peer) == bootstrap.hostHash(bootstrap.rank()));
    if (oneHost || only.isPresent()) {
      return TransportFlags.NONE;
    }
    return TransportFlags.of(
        networks.asSet().stream()
            .filter(network -> communicator.unusableBecause(network).isEmpty())
            .toArray(Transport[]::new));
  }

  /**
   * Returns the transport between two ranks.
   *
   * @param a the one rank
   * @param b the other
   * @param devices of all ranks, by rank
   * @param bootstrap knows which ranks share a host
   */
  Transport between(int a, int b, List<DeviceDescription> devices, Bootstrap bootstrap) {
    if (devices.get(a).kind() != devices.get(b).kind()) {
      throw InvalidUsage.of(
          "collectives: rank %d is on a device of kind %s, rank %d on one of kind %s; give all"
              + " ranks the same kind, for example by FLUXCCL_DEVICE",
          a, devices.get(a).kind(), b, devices.get(b).kind());
    }
    if (only.isPresent()) {
      return only.get();
    }
    if (bootstrap.hostHash(a) == bootstrap.hostHash(b)) {
      return local(devices.get(a).kind());
    }
    return network(a, localRank(a, bootstrap), b, localRank(b, bootstrap), devices);
  }

  private static int localRank(int rank, Bootstrap bootstrap) {
    return (int)
        IntStream.range(0, rank)
            .filter(other -> bootstrap.hostHash(other) == bootstrap.hostHash(rank))
            .count();
  }

  /** Returns the RDMA device of the ranks' rail, among those that both have, or ETHERNET. */
  static Transport network(int a, int localA, int b, int localB, List<DeviceDescription> devices) {
    List<Transport> common =
        devices.get(a).networks().asSet().stream()
            .filter(devices.get(b).networks()::contains)
            .toList();
    List<Transport> rails = common.stream().filter(t -> t != Transport.ETHERNET).toList();
    if (!rails.isEmpty()) {
      Transport rail = Transport.rankToIbDevice(localA, localB, rails.size());
      return rails.get(rail.ordinal() - Transport.IB0.ordinal());
    }
    if (common.contains(Transport.ETHERNET)) {
      return Transport.ETHERNET;
    }
    throw InvalidUsage.of(
        "collectives: rank %d can use %s to other hosts, rank %d can use %s; 'fluxccl info' tells"
            + " why not more, FLUXCCL_NETWORK allows more",
        a, devices.get(a).networks(), b, devices.get(b).networks());
  }
}
