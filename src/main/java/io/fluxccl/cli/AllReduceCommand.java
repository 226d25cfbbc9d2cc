package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.RankEnvironment;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.Callable;
import org.slf4j.MDC;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Spec;

/** {@code fluxccl perf all-reduce}. */
@Command(
    name = "all-reduce",
    description = {
      "Measure and check all-reduce, in place, by the conventions of nccl-tests.",
      "The time is the wall time of the iterations, enqueued at once, from a barrier until the"
          + " last is complete, divided by their number and averaged over the ranks."
    },
    sortOptions = false)
final class AllReduceCommand implements Callable<Integer> {
  /** The name of the MDC entry that logs carry. */
  static final String MDC_RANK = "rank";

  private final CliContext context;

  @Spec private CommandSpec spec;
  @Mixin private PerfOptions options;

  AllReduceCommand(CliContext context) {
    this.context = context;
  }

  @Override
  public Integer call() throws InterruptedException {
    PerfPlan plan = options.plan();
    PerfBackend.RankOptions rankOptions = options.rankOptions();
    OptionalInt ranks = options.ranks();
    if (options.inProcess()) {
      int nRanks = ranks.getAsInt();
      PerfListener listener = listener();
      PerfBackend.InProcessRanks opener = context.backend().inProcess(nRanks, rankOptions);
      return code(
          InProcessRun.run(nRanks, rank -> runRank(() -> opener.open(rank), rank, plan, listener)));
    }
    RankEnvironment environment = RankEnvironment.from(context.environment());
    if (ranks.isPresent() && !environment.launched()) {
      // Rank 0 writes the file; here it is seen to be writable, and rid of another run's rows.
      options.json().ifPresent(PerfJson::new);
      return RankProcesses.runAndAwait(
          new JavaCommand(context.mainClass()).with(originalArguments()),
          ranks.getAsInt(),
          new FirstRankOutput(context.out(), context.err()));
    }
    if (!environment.launched()) {
      throw new InvalidUsage(
          "give --ranks N, or start the ranks with 'fluxccl launch -n N -- ...', mpirun, srun or"
              + " torchrun");
    }
    ranks.ifPresent(this::refuseOtherNumber);
    int rank = environment.rank();
    PerfListener listener = rank == 0 ? listener() : row -> {};
    return code(
        runRank(() -> context.backend().fromEnvironment(rankOptions), rank, plan, listener));
  }

  private static long runRank(
      Callable<PerfRank> opener, Object name, PerfPlan plan, PerfListener listener)
      throws InterruptedException {
    MDC.put(MDC_RANK, String.valueOf(name));
    try (PerfRank rank = open(opener)) {
      return new AllReduceBenchmark(rank, plan, listener).run();
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

  private PerfListener listener() {
    PerfTable table = new PerfTable(context.out());
    if (options.json().isEmpty()) {
      return table;
    }
    PerfJson json = new PerfJson(options.json().get());
    return new PerfListener() {
      @Override
      public void started(PerfPlan plan, List<String> devices) {
        table.started(plan, devices);
      }

      @Override
      public void measured(PerfRow row) {
        table.measured(row);
        json.measured(row);
      }

      @Override
      public void finished(long wrong) {
        table.finished(wrong);
      }
    };
  }

  private void refuseOtherNumber(int ranks) {
    String number = context.environment().get(RankVariables.RANKS);
    if (!Integer.toString(ranks).equals(number)) {
      throw new InvalidUsage(
          "ranks=" + ranks + " but this is already a rank of " + number + "; leave --ranks out");
    }
  }

  private List<String> originalArguments() {
    return spec.root().commandLine().getParseResult().originalArgs();
  }

  private static int code(long wrong) {
    return wrong == 0 ? ExitCode.OK : ExitCode.FAILURE;
  }
}
