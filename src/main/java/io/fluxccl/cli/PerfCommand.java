package io.fluxccl.cli;

import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** {@code fluxccl perf}: holds the benchmarks. */
@Command(
    name = "perf",
    description = "Measure a collective.",
    synopsisSubcommandLabel = "COLLECTIVE")
final class PerfCommand implements Runnable {
  @Spec private CommandSpec spec;

  @Override
  public void run() {
    throw new ParameterException(
        spec.commandLine(), "no collective given; try 'fluxccl perf all-reduce'");
  }
}
