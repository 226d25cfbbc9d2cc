package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Function;
import java.util.stream.Collectors;
import picocli.CommandLine.Option;

/** The options of {@code perf}, by the conventions of nccl-tests. */
final class PerfOptions {
  static final String RANKS_RANGE = "1 to " + ReductionPattern.MAX_RANKS;

  private static final String AUTO = "auto";
  private static final String ALL = "all";
  private static final long DEFAULT_FACTOR = 2;
  private static final int MOST_GRAPH = 1000;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      description =
          "Start this many ranks, as processes of their own. Without it, this process is the rank"
              + " that its launcher says: launch, mpirun, srun, torchrun.")
  private Integer ranks;

  @Option(names = "--in-process", description = "Make the ranks threads of this process instead.")
  private boolean inProcess;

  @Option(
      names = {"-b", "--minbytes"},
      paramLabel = "SIZE",
      converter = ByteSize.class,
      description = "Smallest size: bytes, or with a suffix K, M, G. Default 1K.")
  private Long minBytes;

  @Option(
      names = {"-e", "--maxbytes"},
      paramLabel = "SIZE",
      converter = ByteSize.class,
      description = "Largest size. Default 16M. Sizes are rounded down to whole elements.")
  private Long maxBytes;

  @Option(
      names = {"-f", "--stepfactor"},
      paramLabel = "FACTOR",
      description = "Multiply the size by this from row to row. Default 2.")
  private Long factor;

  @Option(
      names = {"-i", "--stepbytes"},
      paramLabel = "SIZE",
      converter = ByteSize.class,
      description = "Add this to the size from row to row, instead of -f.")
  private Long stepBytes;

  @Option(
      names = "--counts",
      paramLabel = "COUNT",
      split = ",",
      description = "Numbers of elements, instead of sizes; for example 1,3,1023,65537.")
  private List<Long> counts;

  @Option(
      names = {"-n", "--iters"},
      paramLabel = "N",
      description =
          "Iterations to measure. Default: three rounds of 20, and of more where those take less"
              + " than 20 ms; their median counts.")
  private Integer iterations;

  @Option(
      names = {"-w", "--warmup_iters"},
      paramLabel = "N",
      defaultValue = "5",
      description = "Iterations before those. Default 5.")
  private int warmUpIterations;

  @Option(
      names = {"-d", "--datatype"},
      paramLabel = "TYPE",
      description =
          "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3,"
              + " f8e5m2, several with commas, or all. Default float; with --tune, one of each"
              + " class.")
  private String types;

  @Option(
      names = {"-o", "--op"},
      paramLabel = "OP",
      defaultValue = "sum",
      description =
          "sum, prod, min, max, avg, several with commas, or all; of collectives that reduce."
              + " Default sum.")
  private String ops;

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
      description =
          "in (input and output share memory), out (they don't), or both, where the collective can."
              + " Default both.")
  private String placement;

  @Option(
      names = "--register",
      negatable = true,
      defaultValue = "true",
      fallbackValue = "true",
      description = "Whether ranks know each other's buffers (the default), or copies are needed.")
  private boolean register;

  @Option(
      names = "--graph",
      arity = "0..1",
      paramLabel = "N",
      fallbackValue = "20",
      description =
          "Record N calls as a graph and replay it, instead of enqueueing each call. 20 when N is"
              + " left out.")
  private Integer graph;

  @Option(
      names = "--algorithm",
      paramLabel = "NAME",
      description = "Use this algorithm wherever it can; 'fluxccl info' lists them.")
  private String algorithm;

  @Option(
      names = "--tuning",
      paramLabel = "FILE",
      description = "Choose algorithms by this file, which --tune wrote. Default: FLUXCCL_TUNING.")
  private Path tuning;

  @Option(
      names = "--tune",
      paramLabel = "FILE",
      description =
          "Measure every algorithm at every size instead, and write which is the fastest to this"
              + " file. Rules in it for other jobs stay.")
  private Path tune;

  @Option(
      names = "--compare",
      paramLabel = "LIBRARY",
      description = "Measure this library too, row by row: nccl. Needs GPUs.")
  private String compare;

  @Option(
      names = "--device",
      paramLabel = "DEVICE",
      description =
          "auto, host, cuda, or cuda:N for one GPU. Default: what FLUXCCL_DEVICE says, or else"
              + " auto: each rank a GPU of its own when there is one.")
  private String device;

  @Option(
      names = "--transport",
      paramLabel = "NAME",
      defaultValue = AUTO,
      description =
          "auto, or one of those that 'fluxccl info' lists, for example SHM or ETHERNET. Default"
              + " auto.")
  private String transport;

  @Option(
      names = {"-c", "--check"},
      paramLabel = "N",
      defaultValue = "1",
      description = "How often to check every element of the result; 0 for never. Default 1.")
  private int checks;

  @Option(
      names = "--json",
      paramLabel = "FILE",
      description = "Write the rows to this file too. It is valid JSON at any time.")
  private Path json;

  @Option(
      names = "--plot",
      paramLabel = "FILE",
      description = "Draw time and bus bandwidth over size to this file, as SVG.")
  private Path plot;

  @Option(
      names = "--progress",
      negatable = true,
      description = "Say on stderr what is being measured. Default: when that is a terminal.")
  private Boolean progress;

  @Option(
      names = "--timeout",
      paramLabel = "SECONDS",
      defaultValue = "30",
      description = "How long one collective, or one step of the set-up, may take. Default 30.")
  private double timeoutSeconds;

  @Option(
      names = "--jit-warmup",
      paramLabel = "SECONDS",
      defaultValue = "10",
      description =
          "How long at most to run the collective before the first row, until the JVMs of all ranks"
              + " have compiled it; 0 for not at all. Default 10.")
  private double jitWarmUpSeconds;

  boolean inProcess() {
    return inProcess;
  }

  boolean register() {
    return register;
  }

  Optional<Path> json() {
    return Optional.ofNullable(json);
  }

  Optional<Path> plot() {
    return Optional.ofNullable(plot);
  }

  /** The tuning file that is to be written. */
  Optional<Path> tune() {
    return Optional.ofNullable(tune);
  }

  /** Whether to show progress, if that was said. */
  Optional<Boolean> progress() {
    return Optional.ofNullable(progress);
  }

  /** How many ranks to start, or empty when the environment says. */
  OptionalInt ranks() {
    if (ranks == null) {
      require(!inProcess, "--in-process needs --ranks N");
      return OptionalInt.empty();
    }
    require(
        ranks >= 1 && ranks <= ReductionPattern.MAX_RANKS,
        "ranks=" + ranks + " is out of range; allowed are " + RANKS_RANGE);
    return OptionalInt.of(ranks);
  }

  /**
   * How ranks are to be made.
   *
   * @param collectives what they are to do
   */
  PerfBackend.RankOptions rankOptions(List<Collective> collectives) {
    Map<Collective, String> algorithms = new EnumMap<>(Collective.class);
    if (algorithm != null) {
      collectives.forEach(collective -> algorithms.put(collective, algorithm));
    }
    require(compare == null || compare.equals("nccl"), "compare=" + compare + " is none of: nccl");
    require(tune == null || compare == null, "--tune and --compare exclude each other");
    require(tune == null || algorithm == null, "--tune and --algorithm exclude each other");
    require(
        tune == null || json == null && plot == null,
        "--tune excludes --json and --plot: it has no rows");
    require(
        plot == null || !collectives.contains(Collective.BARRIER),
        "--plot draws times over sizes, and a barrier has none");
    require(
        json == null || plot == null || !isSameFile(json, plot),
        "--json and --plot name the same file, " + json);
    return new PerfBackend.RankOptions(
        deviceChoice(),
        transportChoice(),
        timeout(),
        register,
        algorithms,
        Optional.ofNullable(tuning),
        compare != null);
  }

  /**
   * What is to be measured.
   *
   * @param collectives what is done
   * @param nRanks how many ranks do it
   * @throws InvalidUsage if an option is out of range or two contradict each other
   */
  PerfPlan plan(List<Collective> collectives, int nRanks) {
    require(
        iterations == null || iterations >= 1,
        "iters=" + iterations + " is out of range; give 1 or more");
    require(
        warmUpIterations >= 0, "warmup_iters=" + warmUpIterations + " is negative; give 0 or more");
    require(checks >= 0, "check=" + checks + " is negative; give 0 or more");
    require(root >= 0 && root < nRanks, "root=" + root + " of " + nRanks + " ranks");
    require(
        graph == null || graph >= 1 && graph <= MOST_GRAPH,
        "graph=" + graph + " is out of range; give 1 to " + MOST_GRAPH);
    PerfSizes sizes = sizes();
    List<PerfCase> cases = new ArrayList<>();
    collectives.forEach(collective -> addCases(collective, sizes, nRanks, cases));
    return new PerfPlan(
        List.copyOf(cases),
        placements(),
        iterations == null ? OptionalInt.empty() : OptionalInt.of(iterations),
        warmUpIterations,
        graph == null ? OptionalInt.empty() : OptionalInt.of(graph),
        checks,
        seconds("jit-warmup", jitWarmUpSeconds, 0),
        timeout(),
        sizes.describe());
  }

  private void addCases(Collective collective, PerfSizes sizes, int nRanks, List<PerfCase> cases) {
    List<ReduceOp> chosenOps = choose("op", ops, ReduceOp.values(), ReduceOp::ofLabel);
    List<DataType> chosenTypes = choose("type", types(), DataType.values(), DataType::ofLabel);
    if (collective == Collective.BARRIER) {
      cases.add(new PerfCase(collective, 0, DataType.UINT8, null, 0));
      return;
    }
    long parts = PerfCase.parts(collective, nRanks);
    for (DataType type : chosenTypes) {
      for (ReduceOp op :
          collective.reduces() ? chosenOps : java.util.Collections.<ReduceOp>singletonList(null)) {
        for (long count : sizes.counts(type, parts)) {
          cases.add(new PerfCase(collective, count, type, op, collective.hasRoot() ? root : 0));
        }
      }
    }
  }

  private String types() {
    return types != null ? types : tune == null ? "float" : "half,float,f8e4m3,int32";
  }

  private List<Placement> placements() {
    return switch (placement) {
      case "in" -> List.of(Placement.IN_PLACE);
      case "out" -> List.of(Placement.OUT_OF_PLACE);
      case "both" -> List.of(Placement.values());
      default -> throw new InvalidUsage("placement=" + placement + " is none of in, out, both");
    };
  }

  private PerfSizes sizes() {
    if (counts != null) {
      require(
          minBytes == null && maxBytes == null && factor == null && stepBytes == null,
          "--counts excludes -b, -e, -f and -i");
      for (long count : counts) {
        require(count >= 1, "count=" + count + " is out of range; give 1 or more");
      }
      // Rules of a tuning file ascend.
      return new PerfSizes.Counts(
          tune == null ? List.copyOf(counts) : counts.stream().distinct().sorted().toList());
    }
    long min = minBytes == null ? 1L << 10 : minBytes;
    long max = maxBytes == null ? Math.max(min, 16L << 20) : maxBytes;
    require(min <= max, "minbytes=" + min + " is more than maxbytes=" + max);
    require(factor == null || stepBytes == null, "-f and -i exclude each other");
    require(
        factor == null || factor >= 2, "stepfactor=" + factor + " is out of range; give 2 or more");
    if (stepBytes != null) {
      return new PerfSizes.Range(min, max, stepBytes, false);
    }
    return new PerfSizes.Range(min, max, factor == null ? DEFAULT_FACTOR : factor, true);
  }

  private Duration timeout() {
    return seconds("timeout", timeoutSeconds, 0.001);
  }

  private static Duration seconds(String name, double value, double least) {
    require(
        value >= least && value <= 86_400,
        name + "=" + value + " is out of range; give " + least + " to 86400 seconds");
    return Duration.ofNanos((long) (value * 1e9));
  }

  private DeviceChoice deviceChoice() {
    return device == null ? DeviceChoice.fromEnvironment() : DeviceChoice.parse(device);
  }

  private Optional<Transport> transportChoice() {
    if (transport.equals(AUTO)) {
      return Optional.empty();
    }
    try {
      return Optional.of(Transport.valueOf(transport.toUpperCase(Locale.ROOT)));
    } catch (IllegalArgumentException e) {
      throw new InvalidUsage(
          "transport="
              + transport
              + " is none of auto, "
              + Arrays.stream(Transport.values())
                  .map(Transport::name)
                  .collect(Collectors.joining(", ")),
          e);
    }
  }

  private static <T> List<T> choose(
      String option, String labels, T[] all, Function<String, T> ofLabel) {
    if (labels.equals(ALL)) {
      return List.of(all);
    }
    List<T> chosen = Arrays.stream(labels.split(",")).map(ofLabel).distinct().toList();
    require(!chosen.isEmpty(), option + "=" + labels + " names none");
    return chosen;
  }

  private static boolean isSameFile(Path one, Path other) {
    return one.toAbsolutePath().normalize().equals(other.toAbsolutePath().normalize());
  }

  private static void require(boolean condition, String message) {
    if (!condition) {
      throw new InvalidUsage(message);
    }
  }
}
