// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.Deadline;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.bootstrap.UniqueId;
import java.io.File;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.IntStream;

/**
 * The bootstrap with many ranks in this JVM, over the loopback. Measures milliseconds until the
 * last rank has joined, passed a barrier and gathered 64 B and 4 KiB of each rank, and descriptors
 * per rank.
 *
 * <p>Arguments: numbers of ranks; 16 to 1024 by default. 1024 ranks need 8 GiB of heap for 4 KiB.
 */
final class BootstrapScale {
  private static final Deadline NEVER = Deadline.after(Duration.ofMinutes(5));
  private static final File DESCRIPTORS = new File("/proc/self/fd");
  private static final int ROUNDS = 5;
  private static final List<String> SIZES = List.of("16", "64", "256", "1024");

  static final Bench BENCH =
      Bench.onHost(
          "bootstrap",
          "joining, barriers and all-gathers of many ranks in one JVM",
          (rows, arguments) -> {
            run(64, new Bench.Rows("", warmUp -> {}));
            for (String nRanks : arguments.isEmpty() ? SIZES : arguments) {
              run(Integer.parseInt(nRanks), rows);
            }
          });

  private static void run(int nRanks, Bench.Rows rows) {
    int before = DESCRIPTORS.list().length;
    BootstrapOptions options = BootstrapOptions.builder().timeout(Duration.ofMinutes(2)).build();
    List<TcpBootstrap> ranks =
        IntStream.range(0, nRanks)
            .mapToObj(rank -> TcpBootstrap.create(rank, nRanks, options))
            .toList();
    UniqueId id = TcpBootstrap.createUniqueId(options);
    double join = millis(ranks, rank -> rank.initialize(id));
    double barrier = median(ranks, rank -> rank.barrier(NEVER));
    double small = median(ranks, rank -> rank.allGather(new byte[64], NEVER));
    double large = median(ranks, rank -> rank.allGather(new byte[4096], NEVER));
    double descriptors = (double) (DESCRIPTORS.list().length - before) / nRanks;
    rows.add(nRanks + " ranks, join", join, "ms");
    rows.add(nRanks + " ranks, barrier", barrier, "ms");
    rows.add(nRanks + " ranks, all-gather of 64 B", small, "ms");
    rows.add(nRanks + " ranks, all-gather of 4 KiB", large, "ms");
    rows.add(nRanks + " ranks, descriptors of a rank", descriptors, "");
    CompletableFuture.allOf(
            ranks.stream().map(TcpBootstrap::closeAsync).toArray(CompletableFuture<?>[]::new))
        .join();
  }

  private static <T> double median(
      List<TcpBootstrap> ranks, Function<TcpBootstrap, CompletableFuture<T>> operation) {
    return IntStream.range(0, ROUNDS)
        .mapToDouble(round -> millis(ranks, operation))
        .sorted()
        .toArray()[ROUNDS / 2];
  }

  private static <T> double millis(
      List<TcpBootstrap> ranks, Function<TcpBootstrap, CompletableFuture<T>> operation) {
    long start = System.nanoTime();
    CompletableFuture.allOf(ranks.stream().map(operation).toArray(CompletableFuture<?>[]::new))
        .join();
    return (System.nanoTime() - start) / 1e6;
  }
}
