// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.pipeline;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** The program: the same steps in four ways, checked and timed. */
@Command(
    name = "pipeline",
    mixinStandardHelpOptions = true,
    description = "Does a server's steps as blocking calls, as a pipeline, and captured.")
public final class TwoLayers implements Callable<Integer> {
  private static final Duration LIMIT = Duration.ofMinutes(2);
  private static final int AT_ONCE = 10;
  private static final int THREADS = 128;
  private static final int ROWS_PER_BLOCK = THREADS / 32;

  @Spec private CommandSpec spec;

  @Option(
      names = "-n",
      paramLabel = "RANKS",
      description = "how many ranks; one for each GPU, and at least 2")
  private Integer wanted;

  @Option(
      names = "-d",
      paramLabel = "DEVICE",
      description = "host or cuda; cuda where there is a GPU")
  private String device;

  @Option(
      names = "-s",
      paramLabel = "SIZE",
      defaultValue = "512",
      description = "rows and columns of each layer (${DEFAULT-VALUE})")
  private int size;

  @Option(
      names = "-i",
      paramLabel = "STEPS",
      defaultValue = "200",
      description = "how many steps each way is timed (${DEFAULT-VALUE})")
  private int steps;

  @Option(
      names = "--kernels",
      paramLabel = "FILE",
      required = true,
      description = "the sample's .cu file")
  private Path kernels;

  private TwoLayers() {}

  /** Runs it and ends the process; the exit code is 0 when every element was right. */
  public static void main(String[] args) {
    System.exit(run(args));
  }

  /** Runs it and gives the exit code. */
  public static int run(String... args) {
    return new CommandLine(new TwoLayers()).execute(args);
  }

  @Override
  public Integer call() {
    int gpus = CudaDriver.count();
    boolean onHost = device == null ? gpus == 0 : device.equals("host");
    int nRanks = wanted != null ? wanted : Math.max(2, onHost ? 0 : gpus);
    steps = (steps + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
    if (nRanks < 2 || size < nRanks || size % nRanks != 0 || steps < 1) {
      throw new ParameterException(
          spec.commandLine(), "give 2 ranks or more, a size that they divide, and 1 step or more");
    }
    if (!onHost && gpus == 0) {
      spec.commandLine().getErr().println("There is no GPU; -d host runs without.");
      return 1;
    }
    if (onHost) {
      try (LocalRanks ranks = LocalRanks.of(nRanks)) {
        ranks.run(LIMIT, rank -> runRank(rank, LayerKernel.onHost()));
      }
    } else {
      try (CudaModule module = CudaModule.fromFile(kernels);
          LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
        // Loading can wait for a kernel that runs, which may itself wait for another rank.
        ranks.ranks().forEach(rank -> module.prepare((CudaDevice) rank.device()));
        ranks.run(LIMIT, rank -> runRank(rank, module.kernel("layer")));
      }
    }
    return 0;
  }

  private void runRank(LocalRank rank, Kernel kernel) {
    try (DeviceBuffer x = rank.device().allocate(4L * size);
        DeviceBuffer hidden = rank.device().allocate(4L * size);
        Collectives collectives = Collectives.create(rank.communicator()).join()) {
      // All ranks then read and write these in place; any other buffer would do, too.
      collectives.register(x).join();
      collectives.register(hidden).join();
      new Server(rank, collectives, kernel, x, hidden).run();
      // No rank frees its memory before all have finished.
      rank.bootstrap().barrier(Deadline.after(LIMIT)).join();
    }
  }

  /** The work of one rank. */
  private final class Server {
    private final LocalRank rank;
    private final Collectives collectives;
    private final Kernel kernel;
    private final DeviceBuffer x;
    private final DeviceBuffer hidden;
    private final Model model = new Model(size);
    private final List<DeviceBuffer> weights = new ArrayList<>();

    Server(
        LocalRank rank,
        Collectives collectives,
        Kernel kernel,
        DeviceBuffer x,
        DeviceBuffer hidden) {
      this.rank = rank;
      this.collectives = collectives;
      this.kernel = kernel;
      this.x = x;
      this.hidden = hidden;
      for (int layer = 0; layer < Model.LAYERS; layer++) {
        weights.add(model.weights(rank.device(), layer, rank.rank() * columns(), columns()));
      }
    }

    private int columns() {
      return size / rank.nRanks();
    }

    void run() {
      Pipeline layers = layer(layer(collectives.pipeline(), 0, x, hidden), 1, hidden, x);
      try (CapturedPipeline captured = layers.capture()) {
        report("blocking", 1, this::blocking);
        report("pipeline", 1, () -> layers.run().block());
        report("captured", 1, () -> captured.run().block());
        report("captured, 10 at once", AT_ONCE, () -> captured.run(AT_ONCE).block());
      } finally {
        weights.forEach(DeviceBuffer::close);
      }
    }

    private Pipeline layer(Pipeline before, int layer, DeviceBuffer input, DeviceBuffer output) {
      return multiply(before, layer, input, output).allReduce(output, DataType.INT32, ReduceOp.SUM);
    }

    /** This rank's columns, with what belongs to them of the input. */
    private Pipeline multiply(Pipeline before, int layer, DeviceBuffer input, DeviceBuffer output) {
      DeviceBuffer part = input.slice(4L * rank.rank() * columns(), 4L * columns());
      boolean onHost = rank.device().kind() == DeviceKind.HOST;
      int blocks = onHost ? 1 : (size + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
      return before.launch(
          kernel,
          blocks,
          onHost ? 1 : THREADS,
          KernelArgs.of(weights.get(layer), part, output, size, columns()));
    }

    /** Runs the calls one by one, without pipelines. */
    private void blocking() {
      multiply(collectives.pipeline(), 0, x, hidden).run().block();
      collectives.allReduce(hidden, DataType.INT32, ReduceOp.SUM).block();
      multiply(collectives.pipeline(), 1, hidden, x).run().block();
      collectives.allReduce(x, DataType.INT32, ReduceOp.SUM).block();
    }

    /** Some steps from the beginning, checked; then as many as one likes, timed. */
    private void report(String way, int stepsAtOnce, Runnable run) {
      int[] expected = model.firstInput();
      Model.write(x, expected);
      meet();
      for (int i = 0; i < stepsAtOnce; i++) {
        expected = model.step(expected);
      }
      run.run();
      if (!Arrays.equals(Model.read(x), expected)) {
        throw new IllegalStateException("rank " + rank.rank() + ", " + way + ": wrong");
      }
      long[] nanos = new long[steps / stepsAtOnce];
      for (int i = 0; i < nanos.length; i++) {
        long begin = System.nanoTime();
        run.run();
        nanos[i] = (System.nanoTime() - begin) / stepsAtOnce;
      }
      meet();
      Arrays.sort(nanos);
      if (rank.rank() == 0) {
        System.out.printf(
            Locale.ROOT, "%-22s%10.1f us a step%n", way, nanos[nanos.length / 2] / 1e3);
      }
    }

    private void meet() {
      rank.bootstrap().barrier(Deadline.after(LIMIT)).join();
    }
  }
}
