// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.fusion;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.samples.common.Arithmetic;
import io.fluxccl.samples.common.SampleMappedPeers;
import io.fluxccl.samples.common.SampleRanks;
import io.fluxccl.samples.common.Timing;
import io.fluxccl.testkit.LocalRank;
import java.util.Locale;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** The program: computes and gathers, in two kernels and in one, checks and times both. */
@Command(
    name = "fusion",
    mixinStandardHelpOptions = true,
    description = "Puts tiles to all ranks from the kernel that computes them, and compares.")
public final class Fusion implements Callable<Integer> {
  private static final int THREADS = 256;
  private static final int BLOCKS_PER_MULTIPROCESSOR = 4;
  private static final long ALIGNMENT = 16;

  @Spec private CommandSpec spec;

  @Mixin private SampleRanks ranks;

  @Option(
      names = "-b",
      paramLabel = "BYTES",
      defaultValue = "33554432",
      description = "bytes that a rank computes (${DEFAULT-VALUE})")
  private long shardBytes;

  @Option(
      names = "-t",
      paramLabel = "BYTES",
      defaultValue = "16384",
      description = "bytes of a block's tile (${DEFAULT-VALUE})")
  private long tileBytes;

  @Option(
      names = "-w",
      paramLabel = "STEPS",
      defaultValue = "256",
      description = "steps of computing for each element (${DEFAULT-VALUE})")
  private int steps;

  @Option(
      names = "-i",
      paramLabel = "TIMES",
      defaultValue = "20",
      description = "how often each way is timed (${DEFAULT-VALUE})")
  private int times;

  private Fusion() {}

  /** Runs it and ends the process; the exit code is 0 when every element was right. */
  public static void main(String[] args) {
    System.exit(run(args));
  }

  /** Runs it and gives the exit code. */
  public static int run(String... args) {
    return new CommandLine(new Fusion()).execute(args);
  }

  @Override
  public Integer call() {
    if (shardBytes < 1 || tileBytes < 1 || times < 1) {
      throw new ParameterException(spec.commandLine(), "-b, -t and -i are at least 1");
    }
    shardBytes = roundUp(shardBytes);
    tileBytes = roundUp(tileBytes);
    return ranks.run(this::runRank);
  }

  private static long roundUp(long bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  private void runRank(LocalRank rank, CudaModule kernels) {
    try (DeviceBuffer memory = rank.device().allocate(rank.nRanks() * shardBytes);
        DeviceBuffer arrived = rank.device().allocate(Integer.BYTES);
        SampleMappedPeers peers = new SampleMappedPeers(rank.communicator(), memory, 0)) {
      new Rank(rank, kernels, memory, arrived, peers).run();
    }
  }

  /** The work of one rank. */
  private final class Rank {
    private final LocalRank rank;
    private final CudaModule kernels;
    private final DeviceBuffer memory;
    private final DeviceBuffer arrived;
    private final SampleMappedPeers peers;
    private final int blocks;
    private final Arithmetic arithmetic = new Arithmetic(steps);

    Rank(
        LocalRank rank,
        CudaModule kernels,
        DeviceBuffer memory,
        DeviceBuffer arrived,
        SampleMappedPeers peers) {
      this.rank = rank;
      this.kernels = kernels;
      this.memory = memory;
      this.arrived = arrived;
      this.peers = peers;
      this.blocks = BLOCKS_PER_MULTIPROCESSOR * ((CudaDevice) rank.device()).multiprocessors();
    }

    void run() {
      checked("one after the other", 0, this::oneAfterTheOther);
      checked("fused", 1, this::fused);
      int round = 2;
      final double compute = Timing.micros(rank, round, times, this::compute);
      round = Timing.roundAfter(round, times);
      final double gather = Timing.micros(rank, round, times, this::gather);
      round = Timing.roundAfter(round, times);
      final double both = Timing.micros(rank, round, times, this::oneAfterTheOther);
      round = Timing.roundAfter(round, times);
      final double fused = Timing.micros(rank, round, times, this::fused);
      checked("fused", Timing.roundAfter(round, times), this::fused);
      if (rank.rank() == 0) {
        System.out.printf(Locale.ROOT, "%d ranks, %d bytes each; us%n", rank.nRanks(), shardBytes);
        System.out.printf(Locale.ROOT, "compute alone             %10.1f%n", compute);
        System.out.printf(Locale.ROOT, "gather alone              %10.1f%n", gather);
        System.out.printf(Locale.ROOT, "one after the other       %10.1f%n", both);
        System.out.printf(Locale.ROOT, "fused                     %10.1f%n", fused);
      }
    }

    /** Each round has values of its own, so nothing that an earlier one has left can pass. */
    private void checked(String way, int round, Timing.Step step) {
      step.run(round);
      Timing.finish(rank);
      for (int from = 0; from < rank.nRanks(); from++) {
        arithmetic.check(
            memory,
            from * shardBytes,
            shardBytes,
            Arithmetic.seed(from, round),
            (int) (from * shardBytes / Integer.BYTES),
            "rank " + rank.rank() + ", " + way + ", shard of rank " + from);
      }
      // Nobody puts the next ones before all have looked.
      Timing.meet(rank);
    }

    private void oneAfterTheOther(int round) {
      compute(round);
      gather(round);
    }

    private void compute(int round) {
      launch("computeShard", KernelArgs.of(rank.rank(), memory, shardBytes, work(round)));
    }

    private void gather(int round) {
      launch(
          "gather",
          KernelArgs.of(peers.channels(), rank.rank(), rank.nRanks(), arrived, shardBytes));
    }

    private void fused(int round) {
      launch(
          "fused",
          KernelArgs.of(
              peers.channels(),
              rank.rank(),
              rank.nRanks(),
              memory,
              arrived,
              shardBytes,
              tileBytes,
              work(round)));
    }

    private byte[] work(int round) {
      return arithmetic.forKernel(Arithmetic.seed(rank.rank(), round));
    }

    private void launch(String kernel, KernelArgs args) {
      rank.stream().launch(kernels.kernel(kernel), blocks, THREADS, args);
    }
  }
}
