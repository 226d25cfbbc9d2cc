package io.fluxccl.testkit;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;

/**
 * One rank of {@link LocalRanks}, which closes it.
 *
 * @param bootstrap its control messages
 * @param device its device
 * @param communicator of all the ranks
 * @param stream of the device
 */
public record LocalRank(
    Bootstrap bootstrap, Device device, Communicator communicator, DeviceStream stream) {
  /** Its number. */
  public int rank() {
    return bootstrap.rank();
  }

  /** How many ranks there are. */
  public int nRanks() {
    return bootstrap.nRanks();
  }

  /** Collectives of all the ranks; every rank calls it. The caller closes them. */
  public Collectives collectives() {
    return Collectives.create(communicator).join();
  }

  void close() {
    try {
      communicator.close();
      device.close();
    } finally {
      bootstrap.close();
    }
  }
}
