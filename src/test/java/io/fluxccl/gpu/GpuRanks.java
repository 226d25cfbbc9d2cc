// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
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

  /** Runs one rank on GPU 0. */
  static void runOne(Body body) throws Exception {
    run(1, 1, body);
  }

  /** Runs {@code nRanks} ranks, placed round-robin on {@code gpus} GPUs. */
  public static void run(int nRanks, int gpus, Body body) throws Exception {
    runOn(IntStream.range(0, nRanks).map(rank -> rank % gpus).boxed().toList(), body);
  }

  /** A rank on each of these GPUs. */
  public static void runOn(List<Integer> gpus, Body body) throws Exception {
    // A context costs half a second; one that is in use once more does not.
    gpus.forEach(gpu -> KEPT_OPEN.computeIfAbsent(gpu, CudaDevice::open));
    try (LocalRanks local = LocalRanks.of(gpus.size(), rank -> GpuRank.open(gpus.get(rank)))) {
      List<GpuRank> ranks = local.ranks().stream().map(GpuRanks::of).toList();
      try {
        local.run(LIMIT, rank -> body.run(ranks.get(rank.rank())));
      } finally {
        for (GpuRank rank : ranks) {
          rank.close();
        }
      }
    }
  }

  private static GpuRank of(LocalRank rank) {
    return new GpuRank(rank.bootstrap(), rank.communicator(), rank.stream(), false);
  }
}
