package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.transport.ib.IbTransport;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;

/**
 * Which transport connects each two ranks: the one that was asked for, or else mapped memory inside
 * a host, and between hosts RDMA where both ends can, else ETHERNET. A function of what ranks have
 * told each other, in which the two ends can be exchanged: so both come to the same.
 *
 * @param only the transport that was asked for
 * @param networks those that may be used between hosts
 */
record TransportChoice(Optional<Transport> only, TransportFlags networks) {

  static TransportChoice of(CollectivesOptions options) {
    return new TransportChoice(options.transport(), options.networks());
  }

  /** The transport between ranks of one host. */
  static Transport local(DeviceKind kind) {
    return kind == DeviceKind.CUDA ? Transport.CUDA_IPC : Transport.SHM;
  }

  /**
   * What a rank tells the others: by which networks its memory can be reached. None where all ranks
   * are on one host, which nobody asks about then. May block: it looks for devices.
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
   * The transport between two ranks.
   *
   * @param a the one rank
   * @param b the other
   * @param devices what all ranks told, by rank
   * @param bootstrap knows who is on which host
   */
  Transport between(int a, int b, List<DeviceDescription> devices, Bootstrap bootstrap) {
    if (devices.get(a).kind() != devices.get(b).kind()) {
      throw new InvalidUsage(
          "collectives: rank "
              + a
              + " is on a device of kind "
              + devices.get(a).kind()
              + ", rank "
              + b
              + " on one of kind "
              + devices.get(b).kind()
              + "; give all ranks the same kind, for example by FLUXCCL_DEVICE");
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

  /** Rail by rail over the RDMA devices that both have. */
  static Transport network(int a, int localA, int b, int localB, List<DeviceDescription> devices) {
    List<Transport> common =
        devices.get(a).networks().asSet().stream()
            .filter(devices.get(b).networks()::contains)
            .toList();
    List<Transport> rails = common.stream().filter(t -> t != Transport.ETHERNET).toList();
    if (!rails.isEmpty()) {
      Transport rail = IbTransport.rankToIbDevice(localA, localB, rails.size());
      return rails.get(rail.ordinal() - Transport.IB0.ordinal());
    }
    if (common.contains(Transport.ETHERNET)) {
      return Transport.ETHERNET;
    }
    throw new InvalidUsage(
        "collectives: rank "
            + a
            + " can use "
            + devices.get(a).networks()
            + " to other hosts, rank "
            + b
            + " can use "
            + devices.get(b).networks()
            + "; 'fluxccl info' tells why not more, FLUXCCL_NETWORK allows more");
  }
}
