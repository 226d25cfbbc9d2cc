package io.fluxccl.testkit;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostDeviceOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.IntFunction;

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
  /** How long {@link #run} waits for all ranks. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(60);

  private static final Duration GRACE = Duration.ofSeconds(2);

  private final List<LocalRank> ranks = new ArrayList<>();

  private final Meeting meeting;

  private LocalRanks(List<LocalBootstrap> bootstraps, IntFunction<Device> deviceOf) {
    meeting = new Meeting(bootstraps.size());
    try {
      bootstraps.forEach(
          bootstrap -> ranks.add(rankOf(bootstrap, deviceOf.apply(bootstrap.rank()))));
    } catch (RuntimeException e) {
      close();
      bootstraps.forEach(LocalBootstrap::close);
      throw e;
    }
  }

  private LocalRank rankOf(LocalBootstrap bootstrap, Device device) {
    try {
      Communicator communicator = Communicator.create(bootstrap, device);
      return new LocalRank(bootstrap, device, communicator, device.createStream("stream"), meeting);
    } catch (RuntimeException e) {
      device.close();
      throw e;
    }
  }

  private static Device hostDevice(int rank) {
    return HostDevice.create(HostDeviceOptions.DEFAULT.withIndex(rank).withName("rank-" + rank));
  }

  private static Device gpu(int rank) {
    int count = CudaDriver.count();
    if (count == 0) {
      throw new InvalidUsage(
          "ranks on GPUs: " + CudaDriver.unavailableBecause().orElse("there is none"));
    }
    return CudaDevice.open(rank % count);
  }

  /** Ranks of one host, on the host device. */
  public static LocalRanks of(int nRanks) {
    return of(nRanks, LocalRanks::hostDevice);
  }

  /**
   * Ranks of one host, each on a GPU: rank i on GPU i, counting round where there are more ranks
   * than GPUs.
   *
   * @throws InvalidUsage if there is no GPU; says why
   */
  public static LocalRanks onGpus(int nRanks) {
    return of(nRanks, LocalRanks::gpu);
  }

  /**
   * Ranks of one host, on devices of one's own choice.
   *
   * @param nRanks how many
   * @param deviceOf opens a rank's device, which is closed with the rank
   */
  public static LocalRanks of(int nRanks, IntFunction<Device> deviceOf) {
    return new LocalRanks(LocalBootstrap.group(nRanks), deviceOf);
  }

  /**
   * Ranks of several pretended hosts: memory of another host can't be mapped.
   *
   * @param hosts how many hosts
   * @param ranksPerHost how many ranks on each, in rank order
   */
  public static LocalRanks ofHosts(int hosts, int ranksPerHost) {
    return ofHosts(hosts, ranksPerHost, LocalRanks::hostDevice);
  }

  /**
   * {@link #ofHosts(int, int)}, each rank on a GPU as in {@link #onGpus}.
   *
   * @throws InvalidUsage if there is no GPU; says why
   */
  public static LocalRanks ofHostsOnGpus(int hosts, int ranksPerHost) {
    return ofHosts(hosts, ranksPerHost, LocalRanks::gpu);
  }

  /**
   * {@link #ofHosts(int, int)} on devices of one's own choice.
   *
   * @param hosts how many hosts
   * @param ranksPerHost how many ranks on each, in rank order
   * @param deviceOf opens a rank's device, which is closed with the rank
   */
  public static LocalRanks ofHosts(int hosts, int ranksPerHost, IntFunction<Device> deviceOf) {
    List<Long> hostHashes = new ArrayList<>();
    for (int rank = 0; rank < hosts * ranksPerHost; rank++) {
      hostHashes.add((long) rank / ranksPerHost);
    }
    return new LocalRanks(LocalBootstrap.group(hostHashes), deviceOf);
  }

  /**
   * Ranks on the host device that pretend to be spread over hosts in any way.
   *
   * @param hostOf for each rank a number of its host
   */
  public static LocalRanks onHosts(List<Long> hostOf) {
    return new LocalRanks(LocalBootstrap.group(hostOf), LocalRanks::hostDevice);
  }

  /**
   * {@link #onHosts(List)}, each rank on a GPU as in {@link #onGpus}.
   *
   * @param hostOf for each rank a number of its host
   * @throws InvalidUsage if there is no GPU; says why
   */
  public static LocalRanks onHostsOnGpus(List<Long> hostOf) {
    return new LocalRanks(LocalBootstrap.group(hostOf), LocalRanks::gpu);
  }

  /** The ranks, by number. */
  public List<LocalRank> ranks() {
    return List.copyOf(ranks);
  }

  /** One rank's part of a test; may throw anything. */
  @FunctionalInterface
  public interface Body {
    /** Called on a thread of its own for each rank. */
    void run(LocalRank rank) throws Exception;
  }

  /** {@link #run(Duration, Body)} within 60 s. */
  public void run(Body body) {
    run(DEFAULT_TIMEOUT, body);
  }

  /**
   * Runs a body on every rank at once. When one fails, the others' communicators are aborted, so
   * none is left waiting.
   *
   * @param timeout for all of them
   * @param body what each rank does
   * @throws Timeout if they are not done in time; names the first that is not, and holds the ranks'
   *     dumps, and as suppressed what another rank had thrown before. The ranks then get a moment
   *     to end, so that what the caller closes next is not in use
   * @throws FluxCclException what the first rank that failed threw; other exceptions as the cause
   */
  public void run(Duration timeout, Body body) {
    Deadline deadline = Deadline.after(timeout);
    meeting.begin();
    CompletableFuture<Throwable> firstFailure = new CompletableFuture<>();
    List<CompletableFuture<Void>> done = new ArrayList<>();
    for (LocalRank rank : ranks) {
      CompletableFuture<Void> one = new CompletableFuture<>();
      done.add(one);
      Thread thread =
          new Thread(
              () -> {
                try {
                  body.run(rank);
                } catch (Throwable e) {
                  if (firstFailure.complete(e)) {
                    meeting.end();
                    rank.communicator().abort(FluxCclException.from(e));
                  }
                } finally {
                  one.complete(null);
                }
              },
              "local-rank-" + rank.rank());
      thread.setDaemon(true);
      thread.start();
    }
    await(done, firstFailure, deadline);
    Throwable failure = firstFailure.getNow(null);
    if (failure instanceof Error) {
      throw (Error) failure;
    } else if (failure instanceof RuntimeException) {
      throw (RuntimeException) failure;
    } else if (failure != null) {
      throw FluxCclException.from(failure);
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
        StringBuilder dumps = new StringBuilder();
        ranks.forEach(r -> dumps.append(r.communicator().dump()));
        Timeout timeout =
            new Timeout(
                rank,
                "rank "
                    + rank
                    + " not done within "
                    + deadline.timeout().toMillis()
                    + " ms\n"
                    + dumps);
        Throwable before = firstFailure.getNow(null);
        if (before != null) {
          timeout.addSuppressed(before);
        }
        firstFailure.complete(timeout);
        ranks.get(rank).communicator().abort(timeout);
        CompletableFuture.allOf(done.toArray(new CompletableFuture<?>[0]))
            .completeOnTimeout(null, GRACE.toMillis(), TimeUnit.MILLISECONDS)
            .join();
        throw timeout;
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        FluxCclException interrupted = FluxCclException.from(e);
        ranks.get(rank).communicator().abort(interrupted);
        throw interrupted;
      } catch (java.util.concurrent.ExecutionException e) {
        throw FluxCclException.from(e);
      }
    }
  }

  /** Closes communicators, devices and bootstraps. */
  @Override
  public void close() {
    RuntimeException first = null;
    for (LocalRank rank : ranks) {
      try {
        rank.close();
      } catch (RuntimeException e) {
        // The other ranks must be closed all the same.
        if (first == null) {
          first = e;
        } else {
          first.addSuppressed(e);
        }
      }
    }
    if (first != null) {
      throw first;
    }
  }
}
