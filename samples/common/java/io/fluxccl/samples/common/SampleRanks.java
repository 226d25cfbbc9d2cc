// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.common;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;
import picocli.CommandLine.Spec.Target;

/** The options that say on how many GPUs a sample runs, and the ranks that it runs on. */
public final class SampleRanks {
  private static final Duration TIMEOUT = Duration.ofMinutes(2);
  private static final int MAX_RANKS = 64;

  @Spec(Target.MIXEE)
  private CommandSpec spec;

  @Option(
      names = "-n",
      paramLabel = "RANKS",
      description = "how many ranks; one for each GPU, and at least 2")
  private Integer wanted;

  @Option(
      names = "--kernels",
      paramLabel = "FILE",
      required = true,
      description = "the sample's .cu file")
  private Path kernels;

  /** One rank's part of a sample. */
  @FunctionalInterface
  public interface Body {
    /** Called on a thread of its own for each rank. */
    void run(LocalRank rank, CudaModule kernels) throws Exception;
  }

  /**
   * Runs a sample's body on every rank.
   *
   * @return the program's exit code: 1 if there is no GPU, after saying so
   */
  public int run(Body body) {
    if (wanted != null && (wanted < 2 || wanted > MAX_RANKS)) {
      throw new ParameterException(
          spec.commandLine(), "-n " + wanted + ": give 2 to " + MAX_RANKS + " ranks");
    }
    if (!Files.isRegularFile(kernels)) {
      throw new ParameterException(spec.commandLine(), "--kernels " + kernels + ": no such file");
    }
    int gpus = CudaDriver.count();
    if (gpus == 0) {
      spec.commandLine()
          .getErr()
          .println(
              "This sample runs kernels on GPUs, and there is none: "
                  + CudaDriver.unavailableBecause().orElse("the driver knows no GPU")
                  + ". samples/all-pairs-all-reduce runs without.");
      return 1;
    }
    int nRanks = wanted != null ? wanted : Math.max(2, gpus);
    if (nRanks > gpus) {
      spec.commandLine()
          .getErr()
          .println(nRanks + " ranks share " + gpus + " GPU(s): the times say little.");
    }
    // Ranks are closed before the kernels that they run.
    try (CudaModule module = CudaModule.fromFile(kernels);
        LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      // Loading can wait for a kernel that runs, which may itself wait for another rank.
      ranks.ranks().forEach(rank -> module.prepare((CudaDevice) rank.device()));
      ranks.run(TIMEOUT, rank -> body.run(rank, module));
    }
    return 0;
  }
}
