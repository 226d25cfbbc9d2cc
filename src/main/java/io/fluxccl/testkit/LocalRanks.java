// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.communicator.CommunicatorOptions;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostDeviceOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/**
 * Ranks that share this JVM, each with a bootstrap, a device, a communicator and a stream of its
 * own.
 *
 * <pre>{@code
 * try (LocalRanks ranks = LocalRanks.of(2)) {
 *   ranks.run(rank -> {
 *     // on a thread of its own for each rank
 *     rank.communicator().connectOnSetup(1 - rank.rank(), 0, EndpointConfig.of(Transport.SHM));
 *     rank.communicator().setup().join();
 *   });
 * }
 * }</pre>
 */
public final class LocalRanks implements AutoCloseable {
  /** The time for which {@link #run} waits for all ranks. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(60);

  private static final Duration GRACE = Duration.ofSeconds(2);

  private final List<LocalRank> ranks = new ArrayList<>();
  private final LocalRanksOptions options;

  /** Null for a network without faults. */
  private final FaultyNetwork faults;

  private volatile Phaser meeting;

  private LocalRanks(List<LocalBootstrap> bootstraps, IntFunction<Device> deviceOf) {
    this(bootstraps, deviceOf, LocalRanksOptions.DEFAULT);
  }

  private LocalRanks(
      List<LocalBootstrap> bootstraps, IntFunction<Device> deviceOf, LocalRanksOptions options) {
    this.options = options;
    faults = options.faults().map(plan -> new FaultyNetwork(plan, bootstraps)).orElse(null);
    meeting = new Phaser(bootstraps.size());
    try {
      bootstraps.forEach(
          bootstrap -> ranks.add(rankOf(bootstrap, deviceOf.apply(bootstrap.rank()))));
    } catch (RuntimeException | Error e) {
      close();
      bootstraps.forEach(LocalBootstrap::close);
      throw e;
    }
  }

  private LocalRank rankOf(LocalBootstrap bootstrap, Device device) {
    return Closing.onFailure(
        device,
        () -> {
          Communicator communicator =
              faults == null
                  ? Communicator.create(bootstrap, device)
                  : Communicator.create(
                      bootstrap, device, CommunicatorOptions.DEFAULT, faults::transports);
          return new LocalRank(
              bootstrap,
              device,
              communicator,
              device.createStream("stream"),
              options.collectives(),
              () -> meeting);
        });
  }

  private static Device hostDevice(int rank) {
    return HostDevice.create(HostDeviceOptions.DEFAULT.withIndex(rank).withName("rank-" + rank));
  }

  private static Device gpu(int rank) {
    int count = CudaDriver.count();
    if (count == 0) {
      throw new InvalidUsage(
          "ranks on GPUs: " + CudaDriver.unavailableBecause().orElse("there is no GPU"));
    }
    return CudaDevice.open(rank % count);
  }

  /** Creates ranks of one host, on the host device. */
  public static LocalRanks of(int nRanks) {
    return of(nRanks, LocalRanks::hostDevice);
  }

  /** Creates ranks as {@link #of(int)}, with other options. */
  public static LocalRanks of(int nRanks, LocalRanksOptions options) {
    return new LocalRanks(LocalBootstrap.group(nRanks), LocalRanks::hostDevice, options);
  }

  /**
   * Creates ranks of one host, each on a GPU: rank i on GPU i modulo the number of GPUs.
   *
   * @throws InvalidUsage if there is no GPU; its message has the reason
   */
  public static LocalRanks onGpus(int nRanks) {
    return of(nRanks, LocalRanks::gpu);
  }

  /**
   * Creates ranks of one host, on devices of the caller's choice.
   *
   * @param nRanks number of ranks
   * @param deviceOf opens a rank's device, which is closed with the rank
   */
  public static LocalRanks of(int nRanks, IntFunction<Device> deviceOf) {
    return new LocalRanks(LocalBootstrap.group(nRanks), deviceOf);
  }

  /**
   * Creates ranks of several pretended hosts: ranks can't map memory of another host.
   *
   * @param hosts number of hosts
   * @param ranksPerHost number of ranks on each, in rank order
   */
  public static LocalRanks ofHosts(int hosts, int ranksPerHost) {
    return ofHosts(hosts, ranksPerHost, LocalRanks::hostDevice);
  }

  /**
   * Creates ranks as {@link #ofHosts(int, int)}, each on a GPU as in {@link #onGpus}.
   *
   * @throws InvalidUsage if there is no GPU; its message has the reason
   */
  public static LocalRanks ofHostsOnGpus(int hosts, int ranksPerHost) {
    return ofHosts(hosts, ranksPerHost, LocalRanks::gpu);
  }

  /**
   * Creates ranks as {@link #ofHosts(int, int)}, on devices of the caller's choice.
   *
   * @param hosts number of hosts
   * @param ranksPerHost number of ranks on each, in rank order
   * @param deviceOf opens a rank's device, which is closed with the rank
   */
  public static LocalRanks ofHosts(int hosts, int ranksPerHost, IntFunction<Device> deviceOf) {
    return new LocalRanks(hosts(hosts, ranksPerHost), deviceOf);
  }

  /** Creates ranks as {@link #ofHosts(int, int)}, with other options. */
  public static LocalRanks ofHosts(int hosts, int ranksPerHost, LocalRanksOptions options) {
    return new LocalRanks(hosts(hosts, ranksPerHost), LocalRanks::hostDevice, options);
  }

  private static List<LocalBootstrap> hosts(int hosts, int ranksPerHost) {
    return LocalBootstrap.group(
        IntStream.range(0, hosts * ranksPerHost)
            .mapToObj(rank -> (long) rank / ranksPerHost)
            .toList());
  }

  /**
   * Creates ranks on the host device that pretend to be on any hosts.
   *
   * @param hostOf for each rank the number of its host
   */
  public static LocalRanks onHosts(List<Long> hostOf) {
    return new LocalRanks(LocalBootstrap.group(hostOf), LocalRanks::hostDevice);
  }

  /**
   * Creates ranks as {@link #onHosts(List)}, each on a GPU as in {@link #onGpus}.
   *
   * @param hostOf for each rank the number of its host
   * @throws InvalidUsage if there is no GPU; its message has the reason
   */
  public static LocalRanks onHostsOnGpus(List<Long> hostOf) {
    return new LocalRanks(LocalBootstrap.group(hostOf), LocalRanks::gpu);
  }

  /** Returns the ranks, by number. */
  public List<LocalRank> ranks() {
    return List.copyOf(ranks);
  }

  /** One rank's part of a test. It may throw anything. */
  @FunctionalInterface
  public interface Body {
    /** Runs the part of a rank, on a thread of its own. */
    void run(LocalRank rank) throws Exception;
  }

  /** Runs a body on every rank as {@link #run(Duration, Body)}, within 60 s. */
  public void run(Body body) {
    run(DEFAULT_TIMEOUT, body);
  }

  /**
   * Runs a body on every rank at once. If a rank fails, this aborts the others' communicators, so
   * that no rank waits for it.
   *
   * @param timeout limit for all ranks together
   * @param body each rank's part
   * @throws Timeout if a rank is not done in time; it names the first such rank and contains the
   *     ranks' dumps, and an earlier failure of another rank as suppressed. The ranks then get two
   *     seconds to end, so that they don't use what the caller closes next
   * @throws FluxCclException the failure of the first rank that failed; other exceptions as cause.
   *     With {@linkplain LocalRanksOptions#faults() faults} it has the plan, whose seed repeats the
   *     failure, as suppressed
   */
  public void run(Duration timeout, Body body) {
    try {
      runAll(timeout, body);
    } catch (Throwable e) {
      if (faults != null) {
        e.addSuppressed(faults.report());
      }
      throw e;
    }
  }

  private void runAll(Duration timeout, Body body) {
    Deadline deadline = Deadline.after(timeout);
    meeting = new Phaser(ranks.size());
    CompletableFuture<Throwable> firstFailure = new CompletableFuture<>();
    List<CompletableFuture<Void>> done = new ArrayList<>();
    for (LocalRank rank : ranks) {
      CompletableFuture<Void> one = new CompletableFuture<>();
      done.add(one);
      String name = "local-rank-" + rank.rank();
      Thread thread = new Thread(() -> runOne(rank, body, firstFailure, one), name);
      thread.setDaemon(true);
      thread.start();
    }
    await(done, firstFailure, deadline);
    Throwable failure = firstFailure.getNow(null);
    if (failure instanceof Error error) {
      throw error;
    } else if (failure instanceof RuntimeException exception) {
      throw exception;
    } else if (failure != null) {
      throw FluxCclException.from(failure);
    }
  }

  private void runOne(
      LocalRank rank,
      Body body,
      CompletableFuture<Throwable> firstFailure,
      CompletableFuture<Void> done) {
    try {
      body.run(rank);
    } catch (Throwable e) {
      if (firstFailure.complete(e)) {
        meeting.forceTermination();
        rank.communicator().abort(FluxCclException.from(e));
      }
    } finally {
      done.complete(null);
    }
  }

  private void await(
      List<CompletableFuture<Void>> done,
      CompletableFuture<Throwable> firstFailure,
      Deadline deadline) {
    for (int rank = 0; rank < done.size(); rank++) {
      try {
        done.get(rank).get(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
      } catch (TimeoutException e) {
        throw late(rank, done, firstFailure, deadline);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        FluxCclException interrupted = FluxCclException.from(e);
        ranks.get(rank).communicator().abort(interrupted);
        throw interrupted;
      } catch (ExecutionException e) {
        throw FluxCclException.from(e);
      }
    }
  }

  /** Aborts the job because a rank is late, and waits a moment for the ranks to end. */
  private Timeout late(
      int rank,
      List<CompletableFuture<Void>> done,
      CompletableFuture<Throwable> firstFailure,
      Deadline deadline) {
    StringBuilder dumps = new StringBuilder();
    ranks.forEach(each -> dumps.append(each.communicator().dump()));
    Timeout timeout =
        Timeout.of(
            rank, "rank %d not done within %d ms\n%s", rank, deadline.timeout().toMillis(), dumps);
    Throwable before = firstFailure.getNow(null);
    if (before != null) {
      timeout.addSuppressed(before);
    }
    firstFailure.complete(timeout);
    ranks.get(rank).communicator().abort(timeout);
    CompletableFuture.allOf(done.toArray(new CompletableFuture<?>[0]))
        .completeOnTimeout(null, GRACE.toMillis(), TimeUnit.MILLISECONDS)
        .join();
    return timeout;
  }

  /** Returns the faults that have happened so far, in their order. */
  public List<Fault> faultsInjected() {
    return faults == null ? List.of() : faults.injected();
  }

  /** Closes communicators, devices and bootstraps. */
  @Override
  public void close() {
    Closing.all(ranks.stream().<AutoCloseable>map(rank -> rank::close).toList());
  }
}
