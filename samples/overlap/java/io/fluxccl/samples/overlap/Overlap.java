// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.overlap;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.samples.common.Arithmetic;
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

/** The program: computes and sends, one after the other and overlapped, checks and times both. */
@Command(
    name = "overlap",
    mixinStandardHelpOptions = true,
    description = "Hands tiles to the proxy as they are computed, and compares.")
public final class Overlap implements Callable<Integer> {
  // One large block on each multiprocessor: the scheduler lets older blocks run ahead of younger
  // ones,
  // and a tile is not done before the last of them is.
  private static final int THREADS = 1024;
  private static final long ALIGNMENT = 16;
  private static final long MAX_BYTES = 1L << 30;
  private static final int MAX_TILES = 1 << 16;

  @Spec private CommandSpec spec;

  @Mixin private SampleRanks ranks;

  @Option(
      names = "-b",
      paramLabel = "BYTES",
      defaultValue = "67108864",
      description = "bytes of a rank's result (${DEFAULT-VALUE})")
  private long bytes;

  @Option(
      names = "-t",
      paramLabel = "TILES",
      defaultValue = "16",
      description = "how many tiles it is computed in (${DEFAULT-VALUE})")
  private int tiles;

  @Option(
      names = "-w",
      paramLabel = "STEPS",
      defaultValue = "192",
      description = "steps of computing for each element (${DEFAULT-VALUE})")
  private int steps;

  @Option(
      names = "-i",
      paramLabel = "TIMES",
      defaultValue = "20",
      description = "how often each way is timed (${DEFAULT-VALUE})")
  private int times;

  private Overlap() {}

  /** Runs it and ends the process; the exit code is 0 when every element was right. */
  public static void main(String[] args) {
    System.exit(run(args));
  }

  /** Runs it and gives the exit code. */
  public static int run(String... args) {
    return new CommandLine(new Overlap()).execute(args);
  }

  @Override
  public Integer call() {
    if (bytes < 1 || bytes > MAX_BYTES || tiles < 1 || tiles > MAX_TILES || times < 1) {
      throw new ParameterException(
          spec.commandLine(),
          "give -b 1 to " + MAX_BYTES + ", -t 1 to " + MAX_TILES + ", -i at least 1");
    }
    bytes = roundUp(bytes);
    return ranks.run(this::runRank);
  }

  private static long roundUp(long bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  private void runRank(LocalRank rank, CudaModule kernels) {
    try (DeviceBuffer memory = rank.device().allocate(2 * bytes);
        DeviceBuffer arrived = rank.device().allocate((long) tiles * Integer.BYTES);
        RingNeighbors ring = new RingNeighbors(rank.communicator(), memory)) {
      new Rank(rank, kernels, memory, arrived, ring).run();
    }
  }

  /** The work of one rank. */
  private final class Rank {
    private final LocalRank rank;
    private final CudaModule kernels;
    private final DeviceBuffer memory;
    private final DeviceBuffer arrived;
    private final RingNeighbors ring;
    private final int blocks;
    private final Arithmetic arithmetic = new Arithmetic(steps);

    Rank(
        LocalRank rank,
        CudaModule kernels,
        DeviceBuffer memory,
        DeviceBuffer arrived,
        RingNeighbors ring) {
      this.rank = rank;
      this.kernels = kernels;
      this.memory = memory;
      this.arrived = arrived;
      this.ring = ring;
      this.blocks = ((CudaDevice) rank.device()).multiprocessors();
    }

    void run() {
      checked("one after the other", 0, this::oneAfterTheOther);
      checked("overlapped", 1, this::overlapped);
      int round = 2;
      final double compute = Timing.micros(rank, round, times, this::compute);
      round = Timing.roundAfter(round, times);
      final double communicate = Timing.micros(rank, round, times, this::communicate);
      round = Timing.roundAfter(round, times);
      final double both = Timing.micros(rank, round, times, this::oneAfterTheOther);
      round = Timing.roundAfter(round, times);
      final double overlapped = Timing.micros(rank, round, times, this::overlapped);
      checked("overlapped", Timing.roundAfter(round, times), this::overlapped);
      if (rank.rank() == 0) {
        System.out.printf(
            Locale.ROOT, "%d ranks, %d bytes each in %d tiles; us%n", rank.nRanks(), bytes, tiles);
        System.out.printf(Locale.ROOT, "compute alone             %10.1f%n", compute);
        System.out.printf(Locale.ROOT, "communicate alone         %10.1f%n", communicate);
        System.out.printf(Locale.ROOT, "one after the other       %10.1f%n", both);
        System.out.printf(Locale.ROOT, "overlapped                %10.1f%n", overlapped);
      }
    }

    /** Each round has values of its own, so nothing that an earlier one has left can pass. */
    private void checked(String way, int round, Timing.Step step) {
      step.run(round);
      Timing.finish(rank);
      int previous = (rank.rank() + rank.nRanks() - 1) % rank.nRanks();
      arithmetic.check(
          memory,
          bytes,
          bytes,
          Arithmetic.seed(previous, round),
          0,
          "rank " + rank.rank() + ", " + way + ", from rank " + previous);
      // Nobody sends the next ones before all have looked.
      Timing.meet(rank);
    }

    private void oneAfterTheOther(int round) {
      compute(round);
      communicate(round);
    }

    private void compute(int round) {
      launch("compute", blocks, THREADS, KernelArgs.of(memory, bytes, work(round)));
    }

    private void communicate(int round) {
      launch("communicate", 1, 1, KernelArgs.of(ring.next(), ring.previous(), bytes));
    }

    private void overlapped(int round) {
      long tileBytes = roundUp((bytes + tiles - 1) / tiles);
      launch(
          "overlapped",
          blocks,
          THREADS,
          KernelArgs.of(
              ring.next(), ring.previous(), memory, arrived, bytes, tileBytes, work(round)));
    }

    private byte[] work(int round) {
      return arithmetic.forKernel(Arithmetic.seed(rank.rank(), round));
    }

    private void launch(String kernel, int gridDim, int blockDim, KernelArgs args) {
      DeviceStream stream = rank.stream();
      stream.launch(kernels.kernel(kernel), gridDim, blockDim, args);
    }
  }
}
