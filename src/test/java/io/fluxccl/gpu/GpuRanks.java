// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.device.cuda.CudaDevice;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.IntStream;

/** Ranks of this JVM on GPUs; when one fails the others are aborted. */
public final class GpuRanks {
  private static final Duration LIMIT = Duration.ofSeconds(120);

  private static final Map<Integer, CudaDevice> KEPT_OPEN = new ConcurrentHashMap<>();

  private GpuRanks() {}

  /** The code that each rank runs, on its own thread. */
  @FunctionalInterface
  public interface Body {
    void run(GpuRank rank) throws Exception;
  }

  /** Runs {@code nRanks} ranks, placed round-robin on {@code gpus} GPUs. */
  public static void run(int nRanks, int gpus, Body body) throws Exception {
    runOn(IntStream.range(0, nRanks).map(rank -> rank % gpus).boxed().toList(), body);
  }

  /** A rank on each of these GPUs. */
  public static void runOn(List<Integer> gpus, Body body) throws Exception {
    // A context costs half a second; one that is in use once more does not.
    gpus.forEach(gpu -> KEPT_OPEN.computeIfAbsent(gpu, CudaDevice::open));
    List<LocalBootstrap> bootstraps = LocalBootstrap.group(gpus.size());
    List<GpuRank> ranks = new ArrayList<>();
    try {
      for (LocalBootstrap bootstrap : bootstraps) {
        ranks.add(GpuRank.create(bootstrap, gpus.get(bootstrap.rank()), false));
      }
      run(ranks, body);
    } finally {
      close(ranks, bootstraps);
    }
  }

  private static void run(List<GpuRank> ranks, Body body) throws Exception {
    CompletableFuture<Void> firstFailure = new CompletableFuture<>();
    List<CompletableFuture<Void>> done = new ArrayList<>();
    for (GpuRank rank : ranks) {
      CompletableFuture<Void> one = new CompletableFuture<>();
      done.add(one);
      Thread thread =
          new Thread(
              () -> {
                try {
                  body.run(rank);
                } catch (Throwable e) {
                  firstFailure.completeExceptionally(e);
                  rank.communicator().abort(FluxCclException.from(e));
                } finally {
                  one.complete(null);
                }
              },
              "gpu-rank-" + rank.rank());
      thread.setDaemon(true);
      thread.start();
    }
    try {
      CompletableFuture.allOf(done.toArray(new CompletableFuture<?>[0]))
          .get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    } catch (TimeoutException e) {
      StringBuilder dumps = new StringBuilder("not done within " + LIMIT);
      ranks.forEach(rank -> dumps.append('\n').append(rank.communicator().dump()));
      FluxCclException late = new Timeout(FluxCclException.NO_RANK, dumps.toString());
      // Ends kernels that wait for each other.
      ranks.forEach(rank -> rank.communicator().abort(late));
      throw late;
    }
    firstFailure.complete(null);
    try {
      firstFailure.get();
    } catch (ExecutionException e) {
      if (e.getCause() instanceof Error error) {
        throw error;
      }
      throw (Exception) e.getCause();
    }
  }

  private static void close(List<GpuRank> ranks, List<LocalBootstrap> bootstraps) throws Exception {
    Exception first = null;
    for (GpuRank rank : ranks) {
      try {
        rank.close();
      } catch (Exception e) {
        first = first == null ? e : first;
      }
    }
    bootstraps.forEach(LocalBootstrap::close);
    if (first != null) {
      throw first;
    }
  }
}
