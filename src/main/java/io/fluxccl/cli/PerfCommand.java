// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.collective.Collective;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionService;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import java.util.function.Supplier;
import org.slf4j.MDC;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/**
 * {@code fluxccl perf}, which tunes all collectives, and its subcommands, which measure one each.
 * The ranks are threads of this process, or processes that it starts; or this process is one of the
 * ranks that a launcher has started.
 */
@Command(sortOptions = false)
final class PerfCommand implements Callable<Integer> {
  private final CliContext context;
  private final List<Collective> collectives;

  @Spec private CommandSpec spec;
  @Mixin private PerfOptions options;

  private PerfCommand(CliContext context, List<Collective> collectives) {
    this.context = context;
    this.collectives = collectives;
  }

  /** Returns the command with a subcommand for each collective. */
  static CommandLine commandLine(CliContext context) {
    CommandLine perf =
        new CommandLine(new PerfCommand(context, Collective.plain())).setCommandName("perf");
    perf.getCommandSpec()
        .usageMessage()
        .synopsisSubcommandLabel("[COLLECTIVE]")
        .description(
            "Measure a collective: fluxccl perf all-reduce --ranks 2.",
            "Or find the fastest algorithm of each: fluxccl perf --tune FILE --ranks 2.");
    for (Collective collective : Collective.values()) {
      CommandLine one = new CommandLine(new PerfCommand(context, List.of(collective)));
      one.getCommandSpec()
          .usageMessage()
          .description(
              "Measure and check " + describe(collective) + ", by the conventions of nccl-tests.",
              "The time is the wall time of the calls from a barrier until the last is complete,"
                  + " divided by their number and averaged over the ranks.");
      perf.addSubcommand(collective.label(), one);
    }
    return perf.addSubcommand("products", new ProductsCommand(context));
  }

  private static String describe(Collective collective) {
    return switch (collective) {
      case FUSED_ALL_REDUCE -> "all-reduce with residual addition and RMSNorm of rows";
      case SEND_RECEIVE -> "send-receive in a ring";
      case ALL_TO_ALL_V -> "all-to-all with parts of 0 to 2 times the mean";
      case DISPATCH, COMBINE ->
          collective.label() + " of tokens of 7168 values, each to 8 of 64 experts (--tokens)";
      default -> collective.label();
    };
  }

  @Override
  public Integer call() throws InterruptedException {
    refuseOptionsInFront(spec);
    if (collectives.size() > 1 && options.tune().isEmpty()) {
      throw new ParameterException(
          spec.commandLine(),
          "no collective given; try 'fluxccl perf all-reduce', or --tune FILE for all of them");
    }
    if (options.tune().isPresent() && context.backend().compares()) {
      throw new InvalidUsage("--tune compares with no other library; use 'fluxccl perf --tune'");
    }
    OptionalInt ranks = options.ranks();
    PerfBackend.RankOptions rankOptions = options.rankOptions(collectives);
    if (options.inProcess) {
      return runInProcess(ranks.getAsInt(), rankOptions);
    }
    RankEnvironment environment = rankOf(context, ranks);
    int nRanks = environment.launched() ? environment.nRanks() : ranks.orElse(1);
    PerfPlan plan = options.plan(collectives, nRanks);
    if (environment.launched()) {
      int rank = environment.rank();
      PerfReport report = rank == 0 ? report() : null;
      return exitCode(
          run(() -> context.backend().fromEnvironment(rankOptions), rank, plan, report));
    }
    requireRanks(ranks);
    // Rank 0 writes the files; here the run is refused if they can't be written.
    report();
    warnOfFewProcessors(nRanks);
    boolean shows = options.progress.isEmpty() && progress().isShown();
    return startRanks(context, spec, ranks, shows ? List.of("--progress") : List.of());
  }

  /** Refuses options between {@code perf} and the collective: those belong to another command. */
  static void refuseOptionsInFront(CommandSpec spec) {
    if (spec.subcommands().isEmpty()) {
      for (OptionSpec option : spec.parent().commandLine().getParseResult().matchedOptions()) {
        if (!option.inherited()) {
          throw new InvalidUsage("put " + option.shortestName() + " after " + spec.name());
        }
      }
    }
  }

  private int runInProcess(int nRanks, PerfBackend.RankOptions rankOptions)
      throws InterruptedException {
    PerfPlan plan = options.plan(collectives, nRanks);
    PerfReport report = report();
    warnOfFewProcessors(nRanks);
    IntFunction<PerfRank> ranks = context.backend().inProcess(nRanks, rankOptions);
    return exitCode(
        InProcessRun.run(nRanks, rank -> run(() -> ranks.apply(rank), rank, plan, report)));
  }

  /**
   * Returns the rank that the environment gives this process, if it gives one; refuses an option
   * that gives another number of ranks.
   */
  static RankEnvironment rankOf(CliContext context, OptionalInt ranks) {
    RankEnvironment environment = RankEnvironment.from(context.environment());
    if (environment.launched() && ranks.orElse(environment.nRanks()) != environment.nRanks()) {
      throw InvalidUsage.of(
          "ranks=%d but this is already a rank of %d (%s); leave --ranks out",
          ranks.getAsInt(), environment.nRanks(), environment.sizeVariable().orElseThrow());
    }
    return environment;
  }

  private static int requireRanks(OptionalInt ranks) {
    return ranks.orElseThrow(
        () ->
            new InvalidUsage(
                "give --ranks N, or start the ranks with 'fluxccl launch -n N -- ...', mpirun,"
                    + " srun or torchrun"));
  }

  /** Starts a process for each rank, with this command and more arguments; waits for them. */
  static int startRanks(CliContext context, CommandSpec spec, OptionalInt ranks, List<String> more)
      throws InterruptedException {
    int nRanks = requireRanks(ranks);
    List<String> command = javaCommand(context.mainClass());
    command.addAll(spec.root().commandLine().getParseResult().originalArgs());
    command.addAll(more);
    return RankLauncher.runAndAwait(
        command,
        nRanks,
        0,
        RankLauncher.TERMINATION_GRACE,
        RankOutput.ofFirstRank(context.out(), context.err()));
  }

  private void warnOfFewProcessors(int nRanks) {
    int processors = Runtime.getRuntime().availableProcessors();
    if (nRanks > processors) {
      context
          .out()
          .println(
              Text.of(
                  "# %d ranks share %d processors: times include waits for a processor",
                  nRanks, processors));
    }
  }

  /** Returns the command that starts a class with the JVM, options and class path of this one. */
  static List<String> javaCommand(String mainClass) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
    // A debugger's port can't be shared.
    command.removeIf(o -> o.startsWith("-agentlib:jdwp") || o.startsWith("-Xrunjdwp"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), mainClass));
    return command;
  }

  private long run(Supplier<PerfRank> opener, int number, PerfPlan plan, PerfReport report)
      throws InterruptedException {
    MDC.put("rank", String.valueOf(number));
    try (PerfRank rank = opener.get()) {
      Optional<PerfReport> mine = number == 0 ? Optional.of(report) : Optional.empty();
      if (options.tune().isEmpty()) {
        return new CollectiveBenchmark(rank, plan, mine).run();
      }
      new TuningRun(rank, plan, options.register, options.tune().get(), mine).run();
      return 0;
    } finally {
      MDC.remove("rank");
    }
  }

  private PerfReport report() {
    options.tune().ifPresent(ResultFile::requireWritable);
    return new PerfReport(context.out(), progress(), options.json);
  }

  private Progress progress() {
    return new Progress(context.err(), options.progress);
  }

  private static int exitCode(long wrong) {
    return wrong == 0 ? ExitCode.OK : ExitCode.FAILURE;
  }

  /** Runs ranks as threads of this JVM. */
  private static final class InProcessRun {
    /** The time in which the other ranks must notice by themselves that one has failed. */
    static final Duration GRACE = Duration.ofSeconds(5);

    private InProcessRun() {}

    /** The work of a rank. */
    @FunctionalInterface
    interface RankTask {
      /**
       * Runs a rank.
       *
       * @param rank from 0
       * @return how many elements of all ranks were wrong
       */
      long run(int rank) throws InterruptedException;
    }

    /**
     * Runs all ranks and returns when all have ended. If one fails, the others are interrupted
     * after {@link #GRACE}, and the first failure is thrown.
     *
     * @param nRanks how many
     * @param task the work of each
     * @return how many elements were wrong
     */
    static long run(int nRanks, RankTask task) throws InterruptedException {
      ExecutorService threads = Executors.newFixedThreadPool(nRanks, InProcessRun::daemon);
      CompletionService<Long> outcomes = new ExecutorCompletionService<>(threads);
      for (int i = 0; i < nRanks; i++) {
        int rank = i;
        outcomes.submit(() -> task.run(rank));
      }
      int left = nRanks;
      long wrong = 0;
      try {
        while (left-- > 0) {
          wrong = Math.max(wrong, outcomes.take().get());
        }
        return wrong;
      } catch (ExecutionException e) {
        addOtherFailures(outcomes, left, e.getCause());
        throw unchecked(e.getCause());
      } finally {
        // Ranks that still run are interrupted, and have a while to close.
        threads.shutdownNow();
        threads.awaitTermination(GRACE.toNanos(), TimeUnit.NANOSECONDS);
      }
    }

    private static Thread daemon(Runnable task) {
      Thread thread = new Thread(task, "fluxccl-rank");
      thread.setDaemon(true);
      return thread;
    }

    private static void addOtherFailures(
        CompletionService<Long> outcomes, int others, Throwable failure)
        throws InterruptedException {
      Deadline deadline = Deadline.after(GRACE);
      for (int i = 0; i < others; i++) {
        Future<Long> outcome = outcomes.poll(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
        if (outcome == null) {
          return;
        }
        try {
          outcome.get();
        } catch (ExecutionException e) {
          if (e.getCause() != failure) {
            failure.addSuppressed(e.getCause());
          }
        }
      }
    }

    private static RuntimeException unchecked(Throwable failure) {
      if (failure instanceof Error error) {
        throw error;
      }
      return failure instanceof RuntimeException runtime ? runtime : FluxCclException.from(failure);
    }
  }
}
