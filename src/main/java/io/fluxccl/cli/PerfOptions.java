// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Text;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.settings.Settings;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** The options of {@code perf}, by the conventions of nccl-tests. */
final class PerfOptions {
  private static final int MOST_GRAPH = 1000;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      description =
          "Start N ranks as processes. Without it this process is the rank that its launcher says:"
              + " launch, mpirun, srun, torchrun.")
  private Integer ranks;

  @Option(names = "--in-process", description = "Make the ranks threads of this process instead.")
  boolean inProcess;

  @Mixin private final PerfSizes sizes = new PerfSizes();

  @Option(
      names = {"-n", "--iters"},
      paramLabel = "N",
      description = "Iterations to measure. Default: the median of rounds of 20 ms or more.")
  private Optional<Integer> iterations = Optional.empty();

  @Option(
      names = {"-w", "--warmup_iters"},
      paramLabel = "N",
      defaultValue = "5",
      description = "Iterations before those. Default ${DEFAULT-VALUE}.")
  private int warmUpIterations;

  @Option(
      names = {"-d", "--datatype"},
      paramLabel = "TYPE",
      description =
          "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3,"
              + " f8e5m2, several with commas, or all. Default float; with --tune one of each"
              + " class.")
  private String types;

  @Option(
      names = {"-o", "--op"},
      paramLabel = "OP",
      defaultValue = "sum",
      description = "sum, prod, min, max, avg, several with commas, or all. Default sum.")
  private String ops;

  @Option(
      names = "--hidden",
      paramLabel = "N",
      defaultValue = "4096",
      description = "Elements of a row of fused-all-reduce. Default 4096.")
  private long hidden;

  @Option(
      names = {"-r", "--root"},
      paramLabel = "RANK",
      defaultValue = "0",
      description = "The root of broadcast, reduce, gather and scatter. Default 0.")
  private int root;

  @Option(
      names = "--placement",
      paramLabel = "WHICH",
      defaultValue = "both",
      description = "in: input and output share memory; out: they don't; or both, the default.")
  private String placement;

  @Option(
      names = "--register",
      negatable = true,
      defaultValue = "true",
      fallbackValue = "true",
      description = "Register the buffers with all ranks (the default), or copy through others.")
  boolean register;

  @Option(
      names = "--memory",
      paramLabel = "WHICH",
      defaultValue = "own",
      description =
          "The source of the buffers: own, the library; wrapped, cudaMalloc (on the host a direct"
              + " ByteBuffer); pool, cudaMallocAsync, which ranks can't map. Default own.")
  private String memory;

  @Option(
      names = "--graph",
      arity = "0..1",
      paramLabel = "N",
      fallbackValue = "20",
      description = "Record N calls, by default 20, as a graph and replay it.")
  private Optional<Integer> graph = Optional.empty();

  @Option(
      names = "--tokens",
      paramLabel = "N,...",
      defaultValue = "1,16,128,512",
      description = "Tokens of a rank, in dispatch and combine. Default 1,16,128,512.")
  private String tokens;

  @Option(
      names = "--algorithm",
      paramLabel = "NAME",
      description = "Use this algorithm wherever it can; 'fluxccl info' lists them.")
  private String algorithm;

  @Option(
      names = "--tuning",
      paramLabel = "FILE",
      description = "Choose algorithms by a file that --tune wrote. Default: FLUXCCL_TUNING.")
  private Optional<Path> tuning = Optional.empty();

  @Option(
      names = "--tune",
      paramLabel = "FILE",
      description =
          "Measure every algorithm at every size, and write the fastest ones to this file. Rules"
              + " of other jobs in it stay.")
  private Path tune;

  @Option(
      names = "--max-blocks",
      paramLabel = "N",
      description = "The most blocks of each kernel on a GPU. Default: no limit.")
  private Integer maxBlocks;

  @Option(
      names = "--copy-engines",
      description = "Prefer algorithms that let copy engines move the data.")
  private boolean copyEngines;

  @Option(
      names = "--reproducible",
      description = "Only algorithms that add in the ranks' order, also between hosts.")
  private boolean reproducible;

  @Mixin private final CollectiveCommandOptions choices = new CollectiveCommandOptions();

  @Option(
      names = {"-c", "--check"},
      paramLabel = "N",
      defaultValue = "1",
      description = "Number of checks of every element of the result; 0: none. Default 1.")
  private int checks;

  @Option(
      names = "--json",
      paramLabel = "FILE",
      description = "Write the rows to this file too; benchmarks/plot.py draws it.")
  Optional<Path> json = Optional.empty();

  @Option(
      names = "--progress",
      negatable = true,
      description = "Show on stderr what is being measured. Default: if stderr is a terminal.")
  Optional<Boolean> progress = Optional.empty();

  @Option(
      names = "--jit-warmup",
      paramLabel = "SECONDS",
      defaultValue = "10",
      description =
          "Time limit for running the collective before the first row, until the JVMs of all ranks"
              + " have compiled it; 0 for not at all. Default 10.")
  private double jitWarmUpSeconds;

  /** Returns the tuning file that is to be written. */
  Optional<ResultFile> tune() {
    return Optional.ofNullable(tune).map(path -> new ResultFile("tune", path));
  }

  /** Returns how many ranks to start; empty if the environment says it. */
  OptionalInt ranks() {
    require(!inProcess || ranks != null, "--in-process needs --ranks N");
    if (ranks == null) {
      return OptionalInt.empty();
    }
    requireRange("ranks", ranks, 1, ReductionPattern.MAX_RANKS);
    return OptionalInt.of(ranks);
  }

  /**
   * Returns how to make the ranks.
   *
   * @param collectives what they are to do
   * @throws InvalidUsage if options contradict each other
   */
  PerfBackend.RankOptions rankOptions(List<Collective> collectives) {
    require(tune == null || algorithm == null, "--tune and --algorithm exclude each other");
    require(tune == null || json.isEmpty(), "--tune excludes --json: it has no rows");
    requireRange("max-blocks", maxBlocks, 1);
    UnaryOperator<JoinOptions> joining = choices.joining();
    return new PerfBackend.RankOptions(
        from -> {
          JoinOptions chosen = joining.apply(from);
          return chosen.withCollectives(chosen(chosen.collectives(), collectives));
        },
        choices.timeout(Settings.ofProcess()),
        register,
        Text.choose("memory", memory, PerfMemory.values(), PerfMemory::label));
  }

  private CollectivesOptions chosen(CollectivesOptions from, List<Collective> collectives) {
    CollectivesOptions chosen =
        from.withMaxBlocks(maxBlocks == null ? 0 : maxBlocks)
            .withCopyEngines(copyEngines)
            .withReproducible(reproducible);
    chosen = tuning.map(chosen::withTuning).orElse(chosen);
    for (Collective each : algorithm == null ? List.<Collective>of() : collectives) {
      chosen = chosen.withAlgorithm(each, algorithm);
    }
    return chosen;
  }

  /**
   * Returns what is to be measured.
   *
   * @param collectives what is done
   * @param nRanks how many ranks do it
   * @throws InvalidUsage if an option is out of range or two contradict each other
   */
  PerfPlan plan(List<Collective> collectives, int nRanks) {
    requireRange("iters", iterations.orElse(null), 1);
    requireRange("warmup_iters", warmUpIterations, 0);
    requireRange("check", checks, 0);
    requireRange("graph", graph.orElse(null), 1, MOST_GRAPH);
    require(root >= 0 && root < nRanks, "root=%d of %d ranks", root, nRanks);
    sizes.check();
    return new PerfPlan(
        collectives.stream().flatMap(c -> cases(c, nRanks).stream()).toList(),
        placements(),
        iterations,
        warmUpIterations,
        graph,
        checks,
        seconds("jit-warmup", jitWarmUpSeconds, 0),
        choices.timeout(Settings.ofProcess()),
        sizes.describe());
  }

  private List<PerfCase> cases(Collective collective, int nRanks) {
    String typeNames = types != null ? types : tune == null ? "float" : "half,float,f8e4m3,int32";
    List<DataType> chosenTypes = choose(typeNames, DataType.values(), DataType::ofLabel);
    List<ReduceOp> chosenOps = choose(ops, ReduceOp.values(), ReduceOp::ofLabel);
    if (collective == Collective.BARRIER) {
      return List.of(new PerfCase(collective, 0, DataType.UINT8, null, 0));
    }
    if (collective.isOfExperts()) {
      return ExpertLayout.cases(collective, tokens, types, nRanks);
    }
    if (collective == Collective.FUSED_ALL_REDUCE) {
      return fusedCases(chosenTypes);
    }
    long parts = PerfCase.parts(collective, nRanks);
    List<PerfCase> cases = new ArrayList<>();
    for (DataType type : chosenTypes) {
      for (ReduceOp op : collective.reduces() ? chosenOps : Arrays.asList((ReduceOp) null)) {
        for (long count : sizes.counts(type, parts, tune != null)) {
          cases.add(new PerfCase(collective, count, type, op, collective.hasRoot() ? root : 0));
        }
      }
    }
    return cases;
  }

  /** Returns cases of whole rows, one or more. */
  private List<PerfCase> fusedCases(List<DataType> chosenTypes) {
    requireRange("hidden", hidden, 1);
    return chosenTypes.stream()
        .flatMap(
            type ->
                sizes.counts(type, 1, false).stream()
                    .map(count -> Math.max(1, count / hidden) * hidden)
                    .distinct()
                    .map(
                        count ->
                            new PerfCase(
                                Collective.FUSED_ALL_REDUCE, count, type, ReduceOp.SUM, 0, hidden)))
        .toList();
  }

  private static <T> List<T> choose(String labels, T[] all, Function<String, T> ofLabel) {
    return labels.equals("all")
        ? List.of(all)
        : Arrays.stream(labels.split(",", -1)).map(ofLabel).distinct().toList();
  }

  private List<BufferAliasing> placements() {
    return switch (placement) {
      case "in" -> List.of(BufferAliasing.IN_PLACE);
      case "out" -> List.of(BufferAliasing.OUT_OF_PLACE);
      case "both" -> List.of(BufferAliasing.values());
      default -> throw new InvalidUsage("placement=" + placement + " is none of in, out, both");
    };
  }

  static Duration seconds(String name, double value, double least) {
    require(
        value >= least && value <= 86_400,
        "%s=%s is out of range; give %s to 86400 seconds",
        name,
        value,
        least);
    return Duration.ofNanos((long) (value * 1e9));
  }

  static void requireRange(String name, Number value, long least) {
    String message = "%s=%d is out of range; give %d or more";
    require(value == null || value.longValue() >= least, message, name, value, least);
  }

  static void requireRange(String name, Integer value, int least, int most) {
    String message = "%s=%d is out of range; give %d to %d";
    boolean valid = value == null || value >= least && value <= most;
    require(valid, message, name, value, least, most);
  }

  static void require(boolean condition, String message, Object... arguments) {
    if (!condition) {
      throw InvalidUsage.of(message, arguments);
    }
  }
}
