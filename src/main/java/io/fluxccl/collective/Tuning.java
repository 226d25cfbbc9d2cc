package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceKind;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Which algorithm is the fastest, as it was measured: rules that {@code fluxccl perf --tune} writes
 * to a file and {@link CollectivesOptions#withTuning} reads. Immutable.
 *
 * <p>The file is text, a rule a line, after a line with its version; {@code #} begins a comment,
 * which is kept where it has a line of its own:
 *
 * <pre>{@code
 * fluxccl-tuning 1
 * # collective  device  ranks  hosts  buffers       types  up-to-bytes  algorithm
 * all-reduce    cuda    8      1      registered    half   65536        two-shots-ll128
 * }</pre>
 *
 * The first rule that fits a call counts. Calls that none fits, and those whose rule names an
 * algorithm that can't do them, go to the algorithm with the least estimate.
 */
public final class Tuning {
  /** No rules. */
  public static final Tuning NONE = new Tuning(TuningLayout.of(List.of()), Map.of());

  static final String HEADER = "fluxccl-tuning 1";
  private static final String COLUMNS = "%-14s  %-6s  %-5s  %-5s  %-12s  %-7s  %-12s  %s";
  private static final int FIELDS = 8;
  private static final long MOST_BYTES = 1 << 20; // of a file

  /** Types for which the same algorithms are fast. */
  public enum TypeClass {
    /** Floating-point types of 16 bits. */
    HALF,
    /** Floating-point types of 32 and 64 bits. */
    FLOAT,
    /** Floating-point types of 8 bits. */
    FP8,
    /** Integers. */
    INTEGER;

    /** The class of a type. */
    public static TypeClass of(DataType type) {
      if (!type.isFloatingPoint()) {
        return INTEGER;
      }
      return type.size() == 1 ? FP8 : type.size() == 2 ? HALF : FLOAT;
    }
  }

  /**
   * One rule.
   *
   * @param collective what is done
   * @param kind of device it is done on
   * @param ranks how many do it
   * @param hosts on how many hosts
   * @param registered whether the buffers are registered, {@link BoundCall#isRegistered}
   * @param types of the elements
   * @param upToBytes of the largest call, {@link CollectiveCall#totalBytes}
   * @param algorithm the fastest
   */
  public record Rule(
      Collective collective,
      DeviceKind kind,
      int ranks,
      int hosts,
      boolean registered,
      TypeClass types,
      long upToBytes,
      String algorithm) {

    /** Whether it is of the same kind of job as the other one. */
    boolean isOfSameJob(Rule other) {
      return collective == other.collective
          && kind == other.kind
          && ranks == other.ranks
          && hosts == other.hosts
          && registered == other.registered
          && types == other.types;
    }

    private boolean isFor(RankTopology topology) {
      return kind == topology.kind() && ranks == topology.nRanks() && hosts == topology.hosts();
    }

    private boolean fits(BoundCall call) {
      return collective == call.call().collective()
          && call.totalBytes() <= upToBytes
          && types == TypeClass.of(call.call().type())
          && registered == call.isRegistered();
    }

    /** The line above rules that names their fields; a comment. */
    static String columns() {
      return String.format(
          COLUMNS,
          "# collective",
          "device",
          "ranks",
          "hosts",
          "buffers",
          "types",
          "up-to-bytes",
          "algorithm");
    }

    /** The rule as a line of a file. */
    String line() {
      return String.format(
          Locale.ROOT,
          COLUMNS,
          collective.label(),
          label(kind),
          ranks,
          hosts,
          registered ? "registered" : "unregistered",
          label(types),
          upToBytes,
          algorithm);
    }
  }

  private final TuningLayout layout;
  private final List<Rule> rules;

  /** Where a rule was read, for messages. By identity: equal rules may stand in two lines. */
  private final Map<Rule, String> origins;

  private Tuning(TuningLayout layout, Map<Rule, String> origins) {
    this.layout = layout;
    this.rules = layout.rules();
    this.origins = origins;
  }

  /**
   * Reads a file.
   *
   * @throws InvalidUsage if it can't be read, or a line of it is wrong, saying which
   */
  public static Tuning read(Path file) {
    try {
      if (Files.size(file) > MOST_BYTES) {
        throw new InvalidUsage("tuning=" + file + " has more than " + MOST_BYTES + " bytes");
      }
      return parse(Files.readString(file), file.toString());
    } catch (IOException e) {
      throw new InvalidUsage("tuning=" + file + " can't be read: " + e, e);
    }
  }

  /**
   * Reads a file's text.
   *
   * @param text the whole of it
   * @param name for messages
   * @return the rules
   * @throws InvalidUsage if a line is wrong, saying which
   */
  public static Tuning parse(String text, String name) {
    TuningLayout.Draft layout = new TuningLayout.Draft();
    Map<Rule, String> origins = new IdentityHashMap<>();
    boolean begun = false;
    int number = 0;
    for (String line : text.lines().toList()) {
      number++;
      int comment = line.indexOf('#');
      String content = (comment < 0 ? line : line.substring(0, comment)).strip();
      if (content.isEmpty()) {
        layout.comment(line);
        continue;
      }
      try {
        if (begun) {
          Rule rule = rule(content.split("\\s+"));
          layout.rule(rule);
          origins.put(rule, origin(name, number));
        } else {
          require(content.equals(HEADER), "the first line must be '" + HEADER + "'");
          layout.version(line);
          begun = true;
        }
      } catch (InvalidUsage e) {
        throw new InvalidUsage(origin(name, number) + e.getMessage(), e);
      }
    }
    if (!begun) {
      throw new InvalidUsage(
          "tuning=" + name + " is empty; the first line must be '" + HEADER + "'");
    }
    return new Tuning(layout.done(), origins);
  }

  private static String origin(String name, int line) {
    return "tuning=" + name + " line " + line + ": ";
  }

  private static Rule rule(String[] fields) {
    require(
        fields.length == FIELDS,
        "there are "
            + fields.length
            + " fields; a rule has "
            + FIELDS
            + ": collective device ranks hosts buffers types up-to-bytes algorithm");
    String buffers = fields[4];
    require(
        buffers.equals("registered") || buffers.equals("unregistered"),
        "buffers=" + buffers + " is none of registered, unregistered");
    return new Rule(
        choose("collective", fields[0], Collective.values(), Collective::label),
        choose("device", fields[1], DeviceKind.values(), Tuning::label),
        (int) number("ranks", fields[2], 1, Integer.MAX_VALUE),
        (int) number("hosts", fields[3], 1, Integer.MAX_VALUE),
        buffers.equals("registered"),
        choose("types", fields[5], TypeClass.values(), Tuning::label),
        number("up-to-bytes", fields[6], 0, Long.MAX_VALUE),
        fields[7]);
  }

  private static String label(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }

  private static <T> T choose(String field, String text, T[] values, Function<T, String> label) {
    for (T value : values) {
      if (label.apply(value).equals(text)) {
        return value;
      }
    }
    throw new InvalidUsage(
        field
            + "="
            + text
            + " is none of "
            + Arrays.stream(values).map(label).collect(Collectors.joining(", ")));
  }

  private static long number(String field, String text, long least, long most) {
    try {
      long value = Long.parseLong(text);
      require(value >= least && value <= most, field + "=" + text + " is out of range");
      return value;
    } catch (NumberFormatException e) {
      throw new InvalidUsage(field + "=" + text + " is no number", e);
    }
  }

  private static void require(boolean condition, String message) {
    if (!condition) {
      throw new InvalidUsage(message);
    }
  }

  /** The rules, in order. */
  public List<Rule> rules() {
    return rules;
  }

  /**
   * These rules with others, in place of those for the same collective, device, ranks, hosts,
   * buffers and types. Comments that stand above rules stay with those of them that do.
   *
   * @param newer ascending by bytes
   * @return all of them
   */
  public Tuning with(List<Rule> newer) {
    return new Tuning(
        layout.without(old -> newer.stream().anyMatch(old::isOfSameJob)).with(newer), origins);
  }

  /** File and line of a rule, to begin a message with; empty if it was not read. */
  String origin(Rule rule) {
    return origins.getOrDefault(rule, "");
  }

  /** Those for some ranks, and of these those for one collective; in order. */
  List<Rule> rulesFor(RankTopology topology, Collective collective) {
    return rules.stream()
        .filter(rule -> rule.isFor(topology) && rule.collective() == collective)
        .toList();
  }

  /** Which rule is for a call; null if none is. */
  static Rule find(List<Rule> rules, BoundCall call) {
    for (int i = 0; i < rules.size(); i++) {
      if (rules.get(i).fits(call)) {
        return rules.get(i);
      }
    }
    return null;
  }

  /** The same for the same rules, however the file is written: for ranks to compare. */
  String fingerprint() {
    try {
      byte[] text = TuningLayout.of(rules).toText().getBytes(StandardCharsets.UTF_8);
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text), 0, 8);
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every JDK has SHA-256", e);
    }
  }

  /** The file. */
  public String toText() {
    return layout.toText();
  }
}
