package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Collective;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Spec;

/** {@code fluxccl perf all-reduce}, and the same for every other collective. */
@Command(sortOptions = false)
final class CollectiveCommand implements Callable<Integer> {
  private final CliContext context;
  private final Collective collective;

  @Spec private CommandSpec spec;
  @Mixin private PerfOptions options;

  private CollectiveCommand(CliContext context, Collective collective) {
    this.context = context;
    this.collective = collective;
  }

  static CommandLine commandLine(CliContext context, Collective collective) {
    CommandLine command = new CommandLine(new CollectiveCommand(context, collective));
    command
        .getCommandSpec()
        .usageMessage()
        .description(
            "Measure and check " + description(collective) + ", by the conventions of nccl-tests.",
            "The time is the wall time of the calls from a barrier until the last is complete,"
                + " divided by their number and averaged over the ranks.");
    return command;
  }

  private static String description(Collective collective) {
    return switch (collective) {
      case SEND_RECEIVE -> "send-receive in a ring";
      case ALL_TO_ALL_V -> "all-to-all with parts of 0 to 2 times the mean";
      default -> collective.label();
    };
  }

  /** Options that were given before the collective would be those of another command. */
  private void refuseOptionsInFront() {
    for (OptionSpec option : spec.parent().commandLine().getParseResult().matchedOptions()) {
      if (!option.inherited()) {
        throw new InvalidUsage("put " + option.shortestName() + " behind " + collective.label());
      }
    }
  }

  @Override
  public Integer call() throws InterruptedException {
    refuseOptionsInFront();
    return new PerfRun(context, options, List.of(collective), spec).call();
  }
}
