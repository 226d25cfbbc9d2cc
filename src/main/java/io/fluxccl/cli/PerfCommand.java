package io.fluxccl.cli;

import io.fluxccl.collective.Collective;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** {@code fluxccl perf}: holds the benchmarks; by itself it tunes all of them. */
@Command(
    name = "perf",
    description = {
      "Measure a collective: fluxccl perf all-reduce --ranks 2.",
      "Or find the fastest algorithm of each: fluxccl perf --tune FILE --ranks 2."
    },
    synopsisSubcommandLabel = "[COLLECTIVE]",
    sortOptions = false)
final class PerfCommand implements Callable<Integer> {
  private final CliContext context;

  @Spec private CommandSpec spec;
  @Mixin private PerfOptions options;

  private PerfCommand(CliContext context) {
    this.context = context;
  }

  static CommandLine commandLine(CliContext context) {
    CommandLine perf = new CommandLine(new PerfCommand(context));
    for (Collective collective : Collective.values()) {
      perf.addSubcommand(collective.label(), CollectiveCommand.commandLine(context, collective));
    }
    return perf;
  }

  @Override
  public Integer call() throws InterruptedException {
    if (options.tune().isEmpty()) {
      throw new ParameterException(
          spec.commandLine(),
          "no collective given; try 'fluxccl perf all-reduce', or --tune FILE for all of them");
    }
    return new PerfRun(context, options, List.of(Collective.values()), spec).call();
  }
}
