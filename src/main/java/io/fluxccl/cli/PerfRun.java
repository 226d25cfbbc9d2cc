package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.collective.Collective;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.Callable;
import org.slf4j.MDC;
import picocli.CommandLine.Model.CommandSpec;

/**
 * A run of {@code perf}: with ranks that are threads of this process, or processes that it starts,
 * or as one of the ranks that somebody else has started.
 */
final class PerfRun {
  /** The name of the MDC entry that logs carry. */
  static final String MDC_RANK = "rank";

  private final CliContext context;
  private final PerfOptions options;
  private final List<Collective> collectives;
  private final CommandSpec spec;

  /**
   * A run.
   *
   * @param context where
   * @param options what the user wants
   * @param collectives what is measured
   * @param spec of the command that runs
   */
  PerfRun(CliContext context, PerfOptions options, List<Collective> collectives, CommandSpec spec) {
    this.context = context;
    this.options = options;
    this.collectives = collectives;
    this.spec = spec;
  }

  /** Runs it; gives the exit code. */
  int call() throws InterruptedException {
    OptionalInt ranks = options.ranks();
    PerfBackend.RankOptions rankOptions = options.rankOptions(collectives);
    if (options.inProcess()) {
      return inProcess(ranks.getAsInt(), rankOptions);
    }
    RankEnvironment environment = RankEnvironment.from(context.environment());
    int nRanks = environment.launched() ? environment.nRanks() : ranks.orElse(1);
    PerfPlan plan = options.plan(collectives, nRanks);
    if (ranks.isPresent() && !environment.launched()) {
      return startRanks(nRanks, plan);
    }
    if (!environment.launched()) {
      throw new InvalidUsage(
          "give --ranks N, or start the ranks with 'fluxccl launch -n N -- ...', mpirun, srun or"
              + " torchrun");
    }
    ranks.ifPresent(wanted -> refuseOtherNumber(wanted, environment));
    int rank = environment.rank();
    PerfListener listener = rank == 0 ? listener(plan) : new PerfListener() {};
    return code(
        runRank(() -> context.backend().fromEnvironment(rankOptions), rank, plan, listener));
  }

  private int inProcess(int nRanks, PerfBackend.RankOptions rankOptions)
      throws InterruptedException {
    PerfPlan plan = options.plan(collectives, nRanks);
    PerfListener listener = listener(plan);
    PerfBackend.InProcessRanks opener = context.backend().inProcess(nRanks, rankOptions);
    return code(
        InProcessRun.run(nRanks, rank -> runRank(() -> opener.open(rank), rank, plan, listener)));
  }

  private int startRanks(int nRanks, PerfPlan plan) throws InterruptedException {
    // Rank 0 writes the files; here they are seen to be writable, and rid of another run's rows.
    files(plan);
    Progress progress = progress(plan);
    List<String> command =
        new ArrayList<>(
            new JavaCommand(context.mainClass())
                .with(spec.root().commandLine().getParseResult().originalArgs()));
    if (progress.isShown() && options.progress().isEmpty()) {
      command.add("--progress");
    }
    return RankProcesses.runAndAwait(
        command, nRanks, new FirstRankOutput(context.out(), context.err()));
  }

  private long runRank(Callable<PerfRank> opener, Object name, PerfPlan plan, PerfListener listener)
      throws InterruptedException {
    MDC.put(MDC_RANK, String.valueOf(name));
    try (PerfRank rank = open(opener)) {
      return options.tune().isEmpty()
          ? new CollectiveBenchmark(rank, plan, listener).run()
          : new TuningRun(rank, plan, options.register(), options.tune().get()).run(listener);
    } finally {
      MDC.remove(MDC_RANK);
    }
  }

  private static PerfRank open(Callable<PerfRank> opener) throws InterruptedException {
    try {
      return opener.call();
    } catch (RuntimeException | InterruptedException e) {
      throw e;
    } catch (Exception e) {
      throw new IllegalStateException("a rank could not be opened", e);
    }
  }

  private PerfListener listener(PerfPlan plan) {
    List<PerfListener> listeners = new ArrayList<>();
    listeners.add(progress(plan));
    if (options.tune().isPresent()) {
      listeners.add(new TuningTable(context.out()));
    } else {
      listeners.add(new PerfTable(context.out()));
    }
    listeners.addAll(files(plan));
    return PerfListener.of(listeners);
  }

  private List<PerfListener> files(PerfPlan plan) {
    options.tune().ifPresent(TuningRun::requireWritable);
    List<PerfListener> listeners = new ArrayList<>();
    options.json().ifPresent(file -> listeners.add(new PerfJson(file)));
    options.plot().ifPresent(file -> listeners.add(new PerfPlot(file)));
    return listeners;
  }

  private Progress progress(PerfPlan plan) {
    return new Progress(context.err(), options.progress(), plan);
  }

  private static void refuseOtherNumber(int ranks, RankEnvironment environment) {
    if (ranks != environment.nRanks()) {
      throw new InvalidUsage(
          "ranks="
              + ranks
              + " but this is already a rank of "
              + environment.nRanks()
              + " ("
              + environment.sizeVariable().orElseThrow()
              + "); leave --ranks out");
    }
  }

  private static int code(long wrong) {
    return wrong == 0 ? ExitCode.OK : ExitCode.FAILURE;
  }
}
