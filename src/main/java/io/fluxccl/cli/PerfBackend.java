// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.collective.Collective;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import reactor.core.publisher.Flux;

/** Makes the ranks of {@code perf}, and describes the machine for {@code info}. */
interface PerfBackend {
  /**
   * The options of a rank.
   *
   * @param device which device
   * @param transport the only transport to use; empty: chosen for each pair of ranks
   * @param timeout of set-up and of one collective
   * @param register whether buffers are registered
   * @param memory where the buffers come from
   * @param algorithms names of algorithms to use wherever they support the call
   * @param tuning the file that chooses algorithms
   * @param kernels which kernels may be chosen
   */
  record RankOptions(
      DeviceChoice device,
      Optional<Transport> transport,
      Duration timeout,
      boolean register,
      PerfMemory memory,
      Map<Collective, String> algorithms,
      Optional<Path> tuning,
      Kernels kernels) {}

  /**
   * Which kernels may be chosen; {@link io.fluxccl.collective.CollectivesOptions} says more.
   *
   * @param maxBlocks of each; 0 for no limit
   * @param copyEngines whether algorithms that use copy engines are preferred
   * @param reproducible whether sums add in one order everywhere
   */
  record Kernels(int maxBlocks, boolean copyEngines, boolean reproducible) {
    static final Kernels ANY = new Kernels(0, false, false);
  }

  /**
   * Opens the rank that the environment gives this process, and returns when it has found the
   * others.
   *
   * @param options of the rank
   * @return the rank; the caller closes it
   * @throws io.fluxccl.InvalidUsage if the environment names no rank
   */
  PerfRank fromEnvironment(RankOptions options);

  /**
   * Returns ranks that share this JVM.
   *
   * @param nRanks how many
   * @param options of the rank
   * @return opens a rank, which its caller closes, and returns when it has found the others; the
   *     thread of each rank calls it once, all at the same time
   */
  IntFunction<PerfRank> inProcess(int nRanks, RankOptions options);

  /**
   * A generation of a job that recovers from failures.
   *
   * @param number from 1
   * @param rank this process's; the receiver closes it
   * @param newcomers completes when processes wait and this generation has free ranks for them
   * @param renew ends it on all ranks, so that the next one begins with these processes
   */
  record Generation(
      long number, PerfRank rank, CompletableFuture<Void> newcomers, Runnable renew) {}

  /**
   * Joins the job of the environment, and after each failure its next generation.
   *
   * @param options of the rank
   * @return the ranks, until one is closed without a failure
   */
  Flux<Generation> generations(RankOptions options);

  /** Returns whether the ranks measure another library, too. */
  default boolean compares() {
    return false;
  }

  /** Returns the requirements of GPUs by name: available, or why not. */
  default Map<String, String> gpuSupport() {
    return Map.of();
  }

  /** Returns a line for each device besides the host. */
  List<String> devices();

  /** Returns a line for each collective algorithm. */
  List<String> algorithms();
}
