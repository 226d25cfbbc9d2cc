// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code fluxccl launch}. */
@Command(
    name = "launch",
    description = {
      "Start ranks on this machine. The environment gives each its rank: FLUXCCL_RANK,"
          + " FLUXCCL_NRANKS, FLUXCCL_LOCAL_RANK, FLUXCCL_ADDR, FLUXCCL_SECRET.",
      "The exit code is that of the rank that fails first; the others then have 5 s to end before"
          + " they are killed. FLUXCCL_PARENT_PID names the launcher: when it has ended, even"
          + " if it was killed, its ranks end."
    },
    sortOptions = false)
final class LaunchCommand implements Callable<Integer> {
  private static final int MAX_RANKS = 4096;

  private final CliContext context;

  @Option(
      names = {"-n", "--ranks"},
      paramLabel = "N",
      required = true,
      description = "The number of ranks.")
  private int ranks;

  @Option(names = "--tag-output", description = "Put [rank] before every line.")
  private boolean tagOutput;

  @Option(
      names = "--restart",
      paramLabel = "N",
      description =
          "Start ranks that end with an error again, N times at most. A job of"
              + " RankGroup.generations recovers; others start again, if N allows for all ranks.")
  private int restarts;

  @Option(
      names = "--grace",
      paramLabel = "SECONDS",
      defaultValue = "2",
      description =
          "The time that ranks have to end after this process gets SIGTERM or SIGINT; then they"
              + " are killed. Default: ${DEFAULT-VALUE}.")
  private int graceSeconds;

  @Parameters(arity = "1..*", paramLabel = "COMMAND", description = "The command of each rank.")
  private List<String> command;

  LaunchCommand(CliContext context) {
    this.context = context;
  }

  @Override
  public Integer call() throws InterruptedException {
    PerfOptions.requireRange("ranks", ranks, 1, MAX_RANKS);
    PerfOptions.requireRange("restart", restarts, 0);
    PerfOptions.requireRange("grace", graceSeconds, 0);
    return RankLauncher.runAndAwait(
        command,
        ranks,
        restarts,
        Duration.ofSeconds(graceSeconds),
        RankOutput.ofAllRanks(context.out(), context.err(), tagOutput, ranks));
  }
}
