// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Aborted;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.group.Rank;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import reactor.core.scheduler.Schedulers;

/** One rank of {@link LocalRanks}, which closes the rank. */
public final class LocalRank implements Rank {
  private static final long AWAIT_SECONDS = 60;

  private final LocalBootstrap bootstrap;
  private final Device device;
  private final Communicator communicator;
  private final DeviceStream stream;
  private final CollectivesOptions options;
  private final Supplier<Phaser> barrier;

  /** Null until the first call of {@link #connect()}. */
  private CompletableFuture<Collectives> collectives;

  LocalRank(
      LocalBootstrap bootstrap,
      Device device,
      Communicator communicator,
      DeviceStream stream,
      CollectivesOptions options,
      Supplier<Phaser> barrier) {
    this.bootstrap = bootstrap;
    this.device = device;
    this.communicator = communicator;
    this.stream = stream;
    this.options = options;
    this.barrier = barrier;
  }

  @Override
  public Bootstrap bootstrap() {
    return bootstrap;
  }

  @Override
  public Device device() {
    return device;
  }

  @Override
  public Communicator communicator() {
    return communicator;
  }

  /**
   * Makes this rank silent, as if its process were stopped; see {@link
   * LocalBootstrap#stopAnswering}.
   *
   * @param livenessTimeout time from when the others have noticed until the job fails; zero: it
   *     does not fail
   */
  public void stopAnswering(Duration livenessTimeout) {
    bootstrap.stopAnswering(livenessTimeout);
  }

  /** Makes this rank answer heartbeats again. */
  public void answerAgain() {
    bootstrap.answerAgain();
  }

  /** Returns a stream of the device. */
  public DeviceStream stream() {
    return stream;
  }

  @Override
  public int rank() {
    return bootstrap.rank();
  }

  @Override
  public int nRanks() {
    return bootstrap.nRanks();
  }

  /**
   * Connects the collectives. Every rank calls this or {@link #collectives()}; later calls return
   * the same.
   *
   * @return the collectives, which close with the rank; never blocks
   */
  @Experimental
  public synchronized CompletableFuture<Collectives> connect() {
    if (collectives == null) {
      collectives = Collectives.create(communicator, options);
    }
    return collectives.copy();
  }

  /**
   * {@inheritDoc}
   *
   * <p>The first call connects and waits, so every rank makes it.
   *
   * @throws InvalidUsage on a thread that must not block, until they are connected; call {@link
   *     #connect} there
   */
  @Override
  public Collectives collectives() {
    CompletableFuture<Collectives> connecting = connect();
    if (!connecting.isDone() && Schedulers.isInNonBlockingThread()) {
      throw InvalidUsage.of(
          "collectives() on rank %s: the first call waits for the other ranks, and this thread must"
              + " not block; use connect(), or call collectives() before on another thread",
          rank());
    }
    return connecting.join();
  }

  /**
   * Waits until all ranks have called this. It does not use the bootstrap, so that a rank may end
   * the job next without ending another rank's wait.
   *
   * @throws Timeout if not all ranks call it within 60 s
   * @throws Aborted if a rank's body has failed
   */
  public void awaitAll() {
    Phaser phaser = barrier.get();
    try {
      int phase = phaser.arrive();
      int next = phaser.awaitAdvanceInterruptibly(phase, AWAIT_SECONDS, TimeUnit.SECONDS);
      // A phaser that was terminated after all ranks had arrived is at the next phase.
      if (phase < 0 || (next & Integer.MAX_VALUE) == phase) {
        throw Aborted.of(rank(), "awaitAll() on rank %d: another rank has failed", rank());
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw Aborted.of(rank(), "awaitAll() on rank %d: interrupted", rank());
    } catch (TimeoutException e) {
      throw Timeout.of(
          FluxCclException.NO_RANK,
          "awaitAll() on rank %d: only %d of %d ranks called it within %d s",
          rank(),
          phaser.getArrivedParties(),
          nRanks(),
          AWAIT_SECONDS);
    }
  }

  /**
   * Calls {@link #awaitAll}.
   *
   * @deprecated Use {@link #awaitAll}.
   */
  @Deprecated
  public void meet() {
    awaitAll();
  }

  void close() {
    // The collectives close with the communicator.
    Closing.all(communicator, device, bootstrap);
  }
}
