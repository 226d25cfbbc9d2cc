package io.fluxccl.testkit;

import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;

/** One rank of {@link LocalRanks}, which closes it. */
public final class LocalRank {
  private final Bootstrap bootstrap;
  private final Device device;
  private final Communicator communicator;
  private final DeviceStream stream;
  private final Meeting meeting;

  LocalRank(
      Bootstrap bootstrap,
      Device device,
      Communicator communicator,
      DeviceStream stream,
      Meeting meeting) {
    this.bootstrap = bootstrap;
    this.device = device;
    this.communicator = communicator;
    this.stream = stream;
    this.meeting = meeting;
  }

  /** Its control messages. */
  public Bootstrap bootstrap() {
    return bootstrap;
  }

  /** Its device. */
  public Device device() {
    return device;
  }

  /** Of all the ranks. */
  public Communicator communicator() {
    return communicator;
  }

  /** One of the device. */
  public DeviceStream stream() {
    return stream;
  }

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

  /**
   * Waits until all ranks are here. Not by the bootstrap: a rank may end the job right behind this,
   * and no other finds its waiting ended by that.
   *
   * @throws io.fluxccl.Timeout if they are not here within 60 s
   * @throws io.fluxccl.Aborted if a rank's body has failed
   */
  public void meet() {
    meeting.await(rank());
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
