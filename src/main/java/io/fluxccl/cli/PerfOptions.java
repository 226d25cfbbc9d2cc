package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
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
          "Iterations to measure. Default: 20, and more where those take less than 20 ms.")
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
      defaultValue = "float",
      description =
          "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, several with"
              + " commas, or all. Default float.")
  private String types;

  @Option(
      names = {"-o", "--op"},
      paramLabel = "OP",
      defaultValue = "sum",
      description = "sum, prod, min, max, avg, several with commas, or all. Default sum.")
  private String ops;

  @Option(
      names = "--device",
      paramLabel = "DEVICE",
      description =
          "auto, host, cuda, or cuda:N for one GPU. Default: what FLUXCCL_DEVICE says, or else auto:"
              + " each rank a GPU of its own when there is one.")
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
      names = "--timeout",
      paramLabel = "SECONDS",
      defaultValue = "30",
      description = "How long one collective, or one step of the set-up, may take. Default 30.")
  private double timeoutSeconds;

  @Option(
      names = "--jit-warmup",
      paramLabel = "SECONDS",
      defaultValue = "1",
      description =
          "How long to run the collective before the first row, so that the JVM has compiled it."
              + " Default 1.")
  private double jitWarmUpSeconds;

  boolean inProcess() {
    return inProcess;
  }

  Optional<Path> json() {
    return Optional.ofNullable(json);
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

  /** How ranks are to be made. */
  PerfBackend.RankOptions rankOptions() {
    return new PerfBackend.RankOptions(deviceChoice(), transportChoice(), timeout());
  }

  /**
   * What is to be measured.
   *
   * @throws InvalidUsage if an option is out of range or two contradict each other
   */
  PerfPlan plan() {
    require(
        iterations == null || iterations >= 1,
        "iters=" + iterations + " is out of range; give 1 or more");
    require(
        warmUpIterations >= 0, "warmup_iters=" + warmUpIterations + " is negative; give 0 or more");
    require(checks >= 0, "check=" + checks + " is negative; give 0 or more");
    PerfSizes sizes = sizes();
    List<PerfPlan.Case> cases = new ArrayList<>();
    for (DataType type : choose("type", types, DataType.values(), DataType::ofLabel)) {
      for (ReduceOp op : choose("op", ops, ReduceOp.values(), ReduceOp::ofLabel)) {
        sizes.counts(type).forEach(count -> cases.add(new PerfPlan.Case(count, type, op)));
      }
    }
    return new PerfPlan(
        List.copyOf(cases),
        iterations == null ? OptionalInt.empty() : OptionalInt.of(iterations),
        warmUpIterations,
        checks,
        seconds("jit-warmup", jitWarmUpSeconds, 0),
        timeout(),
        sizes.describe());
  }

  private PerfSizes sizes() {
    if (counts != null) {
      require(
          minBytes == null && maxBytes == null && factor == null && stepBytes == null,
          "--counts excludes -b, -e, -f and -i");
      for (long count : counts) {
        require(count >= 1, "count=" + count + " is out of range; give 1 or more");
      }
      return new PerfSizes.Counts(List.copyOf(counts));
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

  private static void require(boolean condition, String message) {
    if (!condition) {
      throw new InvalidUsage(message);
    }
  }
}
