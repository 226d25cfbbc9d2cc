// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.DeviceKind;
import java.io.IOException;
import java.io.StringReader;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/**
 * Measured rules that say which algorithm is the fastest for a call. {@code fluxccl perf --tune}
 * writes them to a file, and {@link CollectivesOptions#withTuning} reads it. Immutable.
 *
 * <p>The file has the format of {@link Properties}. A property holds all rules of a job: its
 * collective, kind of device, number of ranks, number of hosts, registration of the buffers and
 * class of types. Notes stay when the file is tuned again; comments don't.
 *
 * <pre>{@code
 * fluxccl-tuning=2
 * note=measured in May
 * all-reduce.cuda.8.1.registered.half=65536 two-shots-ll128, 16777216 two-shots-bulk
 * all-reduce.cuda.8.1.registered.half.note=checked by hand
 * }</pre>
 *
 * The first rule that fits a call counts. If no rule fits, or if the algorithm of the rule can't do
 * the call, the algorithm with the least estimate is used.
 */
@Experimental
public final class Tuning {
  /** No rules. */
  public static final Tuning NONE = new Tuning("", Map.of(), List.of());

  private static final long MOST_BYTES = 1 << 20; // of a file
  private static final String VERSION_KEY = "fluxccl-tuning";
  private static final String VERSION = "2";
  private static final String NOTE = "note";
  private static final String JOB = "collective.device.ranks.hosts.buffers.types";
  private static final String CHOICE = "up-to-bytes algorithm";
  private static final String HEADER =
      VERSION_KEY + "=" + VERSION + "\n# " + JOB + "=" + CHOICE + ", " + CHOICE + ", ...\n";

  private final String name;
  private final Map<String, String> notes;
  private final List<Rule> rules;

  private Tuning(String name, Map<String, String> notes, List<Rule> rules) {
    this.name = name;
    this.notes = notes;
    this.rules = List.copyOf(rules);
  }

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

    /** Returns the class of a type. */
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
   * @param collective the collective that the rule is for
   * @param kind kind of device
   * @param ranks number of ranks
   * @param hosts number of hosts
   * @param registered whether the buffers are registered, {@link BoundCall#isRegistered}
   * @param types of the elements
   * @param upToBytes size of the largest call, {@link CollectiveCall#totalBytes}
   * @param algorithm name of the fastest algorithm
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

    /** Returns the name of the property that holds this rule. */
    private String job() {
      return Text.of(
          "%s.%s.%s.%s.%s.%s",
          collective.label(), label(kind), ranks, hosts, buffers(registered), label(types));
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
  }

  /**
   * Reads a file.
   *
   * @throws InvalidUsage if it can't be read, or naming the property that is wrong
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
   * Reads the text of a file.
   *
   * @param text all of it
   * @param name of the file, for messages
   * @throws InvalidUsage if a property is wrong, naming it
   */
  public static Tuning parse(String text, String name) {
    Properties properties = load(text.replaceFirst("^\\ufeff", ""), name); // byte order mark
    String version = String.valueOf(properties.remove(VERSION_KEY));
    if (!version.equals(VERSION)) {
      throw refused(
          name,
          version.equals("1")
              ? "has the format of version 1; give 'fluxccl perf --tune' a new file"
              : "is no tuning file: it has no line '" + VERSION_KEY + "=" + VERSION + "'");
    }
    Map<String, String> notes = new TreeMap<>();
    List<Rule> rules = new ArrayList<>();
    for (String key : new TreeSet<>(properties.stringPropertyNames())) {
      if (key.equals(NOTE) || key.endsWith("." + NOTE)) {
        notes.put(key, properties.getProperty(key));
        continue;
      }
      try {
        addRules(key, properties.getProperty(key), rules);
      } catch (InvalidUsage e) {
        throw new InvalidUsage(origin(name, key) + e.getMessage(), e);
      }
    }
    return new Tuning(name, notes, rules);
  }

  private static Properties load(String text, String name) {
    Properties properties =
        new Properties() {
          private static final long serialVersionUID = 1;

          @Override
          public synchronized Object put(Object key, Object value) {
            if (containsKey(key)) {
              throw new IllegalArgumentException(key + " is there twice");
            }
            return super.put(key, value);
          }
        };
    try {
      properties.load(new StringReader(text));
      return properties;
    } catch (IOException | IllegalArgumentException e) {
      throw refused(name, "has wrong lines: " + e.getMessage());
    }
  }

  private static InvalidUsage refused(String name, String reason) {
    return new InvalidUsage("tuning=" + name + " " + reason);
  }

  private static String origin(String name, String job) {
    return "tuning=" + name + " " + job + ": ";
  }

  private static void addRules(String job, String value, List<Rule> rules) {
    String[] fields = job.split("\\.", -1);
    if (fields.length != 6) {
      throw new InvalidUsage("no rule; the name of a rule is " + JOB);
    }
    for (String each : value.split(",", -1)) {
      String[] choice = each.strip().split("\\s+");
      if (choice.length != 2) {
        throw new InvalidUsage("'" + each.strip() + "' is not of the form " + CHOICE);
      }
      rules.add(
          new Rule(
              Text.choose("collective", fields[0], Collective.values(), Collective::label),
              Text.choose("device", fields[1], DeviceKind.values(), Tuning::label),
              (int) number("ranks", fields[2], 1, Integer.MAX_VALUE),
              (int) number("hosts", fields[3], 1, Integer.MAX_VALUE),
              Text.choose("buffers", fields[4], new Boolean[] {true, false}, Tuning::buffers),
              Text.choose("types", fields[5], TypeClass.values(), Tuning::label),
              number("up-to-bytes", choice[0], 0, Long.MAX_VALUE),
              choice[1]));
    }
  }

  private static String buffers(boolean registered) {
    return registered ? "registered" : "unregistered";
  }

  private static String label(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }

  private static long number(String field, String text, long least, long most) {
    try {
      long value = Long.parseLong(text);
      if (value >= least && value <= most) {
        return value;
      }
      throw new InvalidUsage(field + "=" + text + " is out of range");
    } catch (NumberFormatException e) {
      throw new InvalidUsage(field + "=" + text + " is no number", e);
    }
  }

  /** Returns the rules, in order. */
  public List<Rule> rules() {
    return rules;
  }

  /**
   * Returns these rules and newer ones, which replace all rules of the same job together with the
   * note of that job. Other notes stay.
   *
   * @param newer ascending by bytes
   */
  public Tuning with(List<Rule> newer) {
    Set<String> jobs = newer.stream().map(Rule::job).collect(Collectors.toSet());
    Map<String, String> keptNotes = new TreeMap<>(notes);
    jobs.forEach(job -> keptNotes.remove(job + "." + NOTE));
    List<Rule> all = new ArrayList<>(rules);
    all.removeIf(rule -> jobs.contains(rule.job()));
    all.addAll(newer);
    return new Tuning(name, keptNotes, all);
  }

  /** Returns the file and property of a rule, to begin an error message with. */
  String origin(Rule rule) {
    return origin(name, rule.job());
  }

  /** Returns the rules for this topology and collective, in order. */
  List<Rule> rulesFor(RankTopology topology, Collective collective) {
    return rules.stream()
        .filter(rule -> rule.isFor(topology) && rule.collective() == collective)
        .toList();
  }

  /** Returns the first rule that fits the call; null if none does. */
  static Rule find(List<Rule> rules, BoundCall call) {
    for (int i = 0; i < rules.size(); i++) {
      if (rules.get(i).fits(call)) {
        return rules.get(i);
      }
    }
    return null;
  }

  /** Returns a hash of the rules, whatever their order and notes: for ranks to compare. */
  public String fingerprint() {
    try {
      byte[] text = new Tuning(name, Map.of(), rules).toText().getBytes(StandardCharsets.UTF_8);
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text), 0, 8);
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every JDK has SHA-256", e);
    }
  }

  /** Returns the text of the file. */
  public String toText() {
    Properties properties = new Properties();
    properties.putAll(notes);
    rules.forEach(
        rule ->
            properties.merge(
                rule.job(),
                rule.upToBytes() + " " + rule.algorithm(),
                (some, one) -> some + ", " + one));
    StringWriter stored = new StringWriter();
    try {
      properties.store(stored, null);
    } catch (IOException e) {
      throw new UncheckedIOException("a text in memory can't be written", e);
    }
    // Without the date in the first line, so that equal rules are equal files.
    return stored
        .toString()
        .lines()
        .filter(line -> !line.startsWith("#"))
        .sorted()
        .map(line -> line + "\n")
        .collect(Collectors.joining("", HEADER, ""));
  }
}
