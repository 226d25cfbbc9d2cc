package io.fluxccl.testkit;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;

/** One rank of {@link LocalRanks}, which closes the rank. */
public final class LocalRank {
  private static final long MEETING_SECONDS = 60;

  private final Bootstrap bootstrap;
  private final Device device;
  private final Communicator communicator;
  private final DeviceStream stream;
  private final Supplier<Phaser> meeting;

  LocalRank(
      Bootstrap bootstrap,
      Device device,
      Communicator communicator,
      DeviceStream stream,
      Supplier<Phaser> meeting) {
    this.bootstrap = bootstrap;
    this.device = device;
    this.communicator = communicator;
    this.stream = stream;
    this.meeting = meeting;
  }

  /** Returns the rank's bootstrap. */
  public Bootstrap bootstrap() {
    return bootstrap;
  }

  /** Returns the rank's device. */
  public Device device() {
    return device;
  }

  /** Returns the communicator of all the ranks. */
  public Communicator communicator() {
    return communicator;
  }

  /** Returns a stream of the device. */
  public DeviceStream stream() {
    return stream;
  }

  /** Returns the number of the rank. */
  public int rank() {
    return bootstrap.rank();
  }

  /** Returns the number of ranks. */
  public int nRanks() {
    return bootstrap.nRanks();
  }

  /** Creates collectives of all the ranks, which the caller closes. Every rank calls this. */
  public Collectives collectives() {
    return Collectives.create(communicator).join();
  }

  /**
   * Waits until all ranks have called this. It does not use the bootstrap, so that a rank may end
   * the job next without ending another rank's wait.
   *
   * @throws Timeout if not all ranks call it within 60 s
   * @throws Aborted if a rank's body has failed
   */
  public void meet() {
    Phaser phaser = meeting.get();
    try {
      int phase = phaser.arrive();
      int next = phaser.awaitAdvanceInterruptibly(phase, MEETING_SECONDS, TimeUnit.SECONDS);
      // A phaser that was terminated after all had come is at the next phase.
      if (phase < 0 || (next & Integer.MAX_VALUE) == phase) {
        throw Aborted.of(rank(), "meet() on rank %d: another rank has failed", rank());
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw Aborted.of(rank(), "meet() on rank %d: interrupted", rank());
    } catch (TimeoutException e) {
      throw Timeout.of(
          FluxCclException.NO_RANK,
          "meet() on rank %d: only %d of %d ranks came within %d s",
          rank(),
          phaser.getArrivedParties(),
          nRanks(),
          MEETING_SECONDS);
    }
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
