// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.foreign;

import io.fluxccl.Deadline;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.Locale;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** The program: all-reduces an engine's tensor in place, on the engine's stream. */
@Command(
    name = "foreign-memory",
    mixinStandardHelpOptions = true,
    description = "All-reduces memory that an engine has allocated, on the engine's stream.")
public final class ForeignMemory implements Callable<Integer> {
  private static final Duration LIMIT = Duration.ofMinutes(2);

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
      paramLabel = "FLOATS",
      defaultValue = "1000000",
      description = "how many floats the tensor has (${DEFAULT-VALUE})")
  private int floats;

  @Option(
      names = "-i",
      paramLabel = "STEPS",
      defaultValue = "100",
      description = "how many steps (${DEFAULT-VALUE})")
  private int steps;

  private ForeignMemory() {}

  /** Runs it and ends the process; the exit code is 0 when every element was right. */
  public static void main(String[] args) {
    System.exit(run(args));
  }

  /** Runs it and gives the exit code. */
  public static int run(String... args) {
    return new CommandLine(new ForeignMemory()).execute(args);
  }

  @Override
  public Integer call() {
    int gpus = CudaDriver.count();
    boolean onHost = device == null ? gpus == 0 : device.equals("host");
    int nRanks = wanted != null ? wanted : Math.max(2, onHost ? 0 : gpus);
    if (nRanks < 2 || floats < 1 || floats > 1 << 28 || steps < 1) {
      throw new ParameterException(
          spec.commandLine(), "give 2 ranks or more, 1 to 268435456 floats and 1 step or more");
    }
    if (!onHost && gpus == 0) {
      spec.commandLine().getErr().println("There is no GPU; -d host runs without.");
      return 1;
    }
    try (LocalRanks ranks = onHost ? LocalRanks.of(nRanks) : LocalRanks.onGpus(nRanks)) {
      ranks.run(LIMIT, this::runRank);
    }
    System.out.printf(
        Locale.ROOT, "%d ranks, %d steps: every element of %d is right%n", nRanks, steps, floats);
    return 0;
  }

  private Engine engine(Device of) {
    return of instanceof HostDevice host
        ? new HostEngine(host, floats)
        : new JcudaEngine((CudaDevice) of, floats);
  }

  private void runRank(LocalRank rank) {
    Engine engine = engine(rank.device());
    float sum = rank.nRanks() * (rank.nRanks() + 1) / 2;
    try (Collectives collectives = rank.collectives();
        Collectives lane = engine.lane(collectives);
        DeviceBuffer tensor = engine.wrap()) {
      lane.register(tensor).join();
      engine.steps(lane, tensor, rank.rank() + 1, steps);
      for (float found : engine.read()) {
        if (found != sum) {
          throw new IllegalStateException("rank " + rank.rank() + ": " + found + ", not " + sum);
        }
      }
      // No rank frees its tensor while another one may still use it.
      rank.bootstrap().barrier(Deadline.after(LIMIT)).join();
    }
    rank.bootstrap().barrier(Deadline.after(LIMIT)).join();
    engine.close();
  }
}
