// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.alltoall;

import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.samples.common.SampleRanks;
import io.fluxccl.samples.common.Timing;
import io.fluxccl.testkit.LocalRank;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** The program: all-to-alls of several sizes, by the host and by kernels, checked and timed. */
@Command(
    name = "custom-all-to-all",
    mixinStandardHelpOptions = true,
    description = "Runs an all-to-all kernel of its own, and compares it with the host's writes.")
public final class CustomAllToAll implements Callable<Integer> {
  private static final int ALIGNMENT = 16;
  private static final int MAX_BYTES = 16 << 20;
  private static final int MAX_PACKET_BYTES = 256 << 10;

  @Spec private CommandSpec spec;

  @Mixin private SampleRanks ranks;

  @Option(
      names = "-b",
      paramLabel = "BYTES",
      split = ",",
      defaultValue = "1024,16384,262144,4194304",
      description = "bytes to each rank (${DEFAULT-VALUE}), multiples of 16")
  private List<Integer> sizes;

  @Option(
      names = "-i",
      paramLabel = "TIMES",
      defaultValue = "50",
      description = "how often each way is timed (${DEFAULT-VALUE})")
  private int times;

  private CustomAllToAll() {}

  /** Runs it and ends the process; the exit code is 0 when every word was right. */
  public static void main(String[] args) {
    System.exit(run(args));
  }

  /** Runs it and gives the exit code. */
  public static int run(String... args) {
    return new CommandLine(new CustomAllToAll()).execute(args);
  }

  @Override
  public Integer call() {
    for (int size : sizes) {
      if (size < ALIGNMENT || size > MAX_BYTES || size % ALIGNMENT != 0) {
        throw new ParameterException(
            spec.commandLine(), "-b " + size + ": give multiples of 16, up to " + MAX_BYTES);
      }
    }
    if (times < 1) {
      throw new ParameterException(spec.commandLine(), "-i " + times + ": give 1 or more");
    }
    return ranks.run(this::runRank);
  }

  private void runRank(LocalRank rank, CudaModule kernels) {
    if (rank.rank() == 0) {
      System.out.printf(
          Locale.ROOT,
          "%d ranks; us%n%12s %12s %12s %12s %12s%n",
          rank.nRanks(),
          "bytes",
          "by host",
          "by puts",
          "by proxies",
          "by packets");
    }
    for (int i = 0; i < sizes.size(); i++) {
      int size = sizes.get(i);
      try (AllToAll allToAll = new AllToAll(rank, kernels, size, i)) {
        run(rank, allToAll, size);
      }
    }
  }

  private void run(LocalRank rank, AllToAll allToAll, int size) {
    boolean packets = size <= MAX_PACKET_BYTES;
    int round = 1;
    allToAll.check("by host", round++, allToAll::byHost);
    // An even and an odd round each.
    for (int i = 0; i < 2; i++) {
      allToAll.check("by puts", round++, allToAll::byPuts);
    }
    for (int i = 0; i < 2; i++) {
      allToAll.check("by proxies", round++, allToAll::byProxies);
    }
    for (int i = 0; i < 2 && packets; i++) {
      allToAll.check("by packets", round++, allToAll::byPackets);
    }
    final double byHost = Timing.micros(rank, round, times, allToAll::byHost);
    round = Timing.roundAfter(round, times);
    final double byPuts = Timing.micros(rank, round, times, allToAll::byPuts);
    round = Timing.roundAfter(round, times);
    final double byProxies = Timing.micros(rank, round, times, allToAll::byProxies);
    round = Timing.roundAfter(round, times);
    final double byPackets =
        packets ? Timing.micros(rank, round, times, allToAll::byPackets) : Double.NaN;
    round = Timing.roundAfter(round, times);
    allToAll.check("by puts", round++, allToAll::byPuts);
    allToAll.check("by proxies", round++, allToAll::byProxies);
    if (packets) {
      allToAll.check("by packets", round, allToAll::byPackets);
    }
    if (rank.rank() == 0) {
      System.out.printf(
          Locale.ROOT,
          "%12d %12.1f %12.1f %12.1f %12s%n",
          size,
          byHost,
          byPuts,
          byProxies,
          packets ? String.format(Locale.ROOT, "%.1f", byPackets) : "-");
    }
  }
}
