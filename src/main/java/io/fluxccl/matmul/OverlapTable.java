// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Rules that say for which numbers of rows {@link OverlappedProducts} overlap products with
 * communication. {@link OverlappedProducts#tune} measures them. Immutable.
 *
 * <p>As a text, a line for each rule: the operation, ranks, inputs, outputs, the most rows, and the
 * way. The rule with the fewest rows that fits a call counts. Without a rule, the library's own
 * choice for H200 counts.
 *
 * <pre>{@code
 * fluxccl-overlap=1
 * matmul-reduce-scatter 4 7168 8192 1024 serial
 * matmul-reduce-scatter 4 7168 8192 8192 pieces
 * }</pre>
 */
@Experimental
public final class OverlapTable {
  /** Without rules. */
  public static final OverlapTable DEFAULT = new OverlapTable(List.of(), "default");

  private static final long MOST_BYTES = 1 << 20; // of a file
  private static final String BYTE_ORDER_MARK = "\ufeff"; // begins files of some editors
  private static final String HEADER = "fluxccl-overlap=1";
  private static final String FORM = "operation ranks inputs outputs up-to-rows way";

  // By measurements on 2 and 4 H200s. Products of smaller pieces leave multiprocessors idle for
  // longer than the copies that they hide take; two ranks have less to hide.
  private static final int LEAST_ROWS_OF_PIECE = 256;
  private static final int LEAST_ROWS_OF_PIECE_OF_PAIR = 1024;
  private static final long LEAST_MULTIPLICATIONS_OF_PIECE = 15_000_000_000L;

  /** The operations. */
  public enum Operation {
    /** {@link OverlappedProducts#matmulReduceScatter}. */
    MATMUL_REDUCE_SCATTER,
    /** {@link OverlappedProducts#allGatherMatmul}. */
    ALL_GATHER_MATMUL,
    /** {@link OverlappedProducts#matmulAllReduce}. */
    MATMUL_ALL_REDUCE
  }

  /** The ways to execute an operation. */
  public enum Way {
    /** The product and the collective, one after the other. */
    SERIAL,
    /** Products of pieces, each beside the copies of another piece by copy engines. */
    PIECES
  }

  /**
   * One rule.
   *
   * @param operation that it is for
   * @param ranks number of ranks
   * @param inputs of the shape
   * @param outputs of the shape
   * @param upToRows the most rows for which it is
   * @param way the fastest
   */
  public record Rule(
      Operation operation, int ranks, int inputs, int outputs, int upToRows, Way way) {
    /** Refuses null, and numbers less than 1. */
    public Rule {
      InvalidUsage.requireNonNull(operation, "overlap rule", "operation");
      InvalidUsage.requireNonNull(way, "overlap rule", "way");
      if (ranks < 1 || inputs < 1 || outputs < 1 || upToRows < 1) {
        throw InvalidUsage.of(
            "overlap rule: ranks=%d, inputs=%d, outputs=%d, upToRows=%d; give 1 or more of each",
            ranks, inputs, outputs, upToRows);
      }
    }

    private String job() {
      return Text.of("%s %d %d %d", label(operation), ranks, inputs, outputs);
    }

    private String toLine() {
      return job() + " " + upToRows + " " + label(way);
    }
  }

  private final List<Rule> rules;

  /** Refuses two rules for the same calls; the name is for the message. */
  private OverlapTable(List<Rule> rules, String name) {
    this.rules =
        rules.stream()
            .sorted(Comparator.comparingInt(Rule::upToRows).thenComparing(Rule::toLine))
            .toList();
    Set<String> calls = new HashSet<>();
    for (Rule rule : this.rules) {
      if (!calls.add(rule.job() + " " + rule.upToRows)) {
        throw InvalidUsage.of(
            "overlap table %s: '%s' and another rule are for the same calls; give one of them",
            name, rule.toLine());
      }
    }
  }

  /**
   * Reads a file of 1 MiB or less.
   *
   * @throws InvalidUsage naming the file, if it can't be read, or also the line that is wrong
   */
  public static OverlapTable read(Path file) {
    try {
      if (Files.size(file) > MOST_BYTES) {
        throw InvalidUsage.of(
            "overlap table %s has more than %d bytes; give a file with the text of a table",
            file, MOST_BYTES);
      }
      return parse(Files.readString(file), file.toString());
    } catch (IOException e) {
      throw new InvalidUsage(
          Text.of(
              "overlap table %s can't be read (%s); give a file with the text of a table", file, e),
          e);
    }
  }

  /**
   * Reads the text of a file.
   *
   * @param name of the file, for messages
   * @throws InvalidUsage naming the file and the line that is wrong, or a rule that is not the only
   *     one for its calls
   */
  public static OverlapTable parse(String text, String name) {
    List<Rule> rules = new ArrayList<>();
    boolean hasHeader = false;
    int number = 0;
    for (String raw : text.lines().toList()) {
      String line = (number == 0 ? raw.replace(BYTE_ORDER_MARK, "") : raw).strip();
      number++;
      if (line.isEmpty() || hasHeader && line.startsWith("#")) {
        continue;
      }
      if (hasHeader) {
        rules.add(rule(line, name, number));
      } else if (line.equals(HEADER)) {
        hasHeader = true;
      } else {
        throw invalid(name, number, line, "begin the table with '" + HEADER + "'", null);
      }
    }
    if (!hasHeader) {
      throw invalid(name, 1, "", "begin the table with '" + HEADER + "'", null);
    }
    return new OverlapTable(rules, name);
  }

  private static Rule rule(String line, String name, int number) {
    String[] fields = line.split("\\s+");
    if (fields.length != 6) {
      throw invalid(name, number, line, "give " + FORM, null);
    }
    try {
      return new Rule(
          Text.choose("operation", fields[0], Operation.values(), OverlapTable::label),
          Integer.parseInt(fields[1]),
          Integer.parseInt(fields[2]),
          Integer.parseInt(fields[3]),
          Integer.parseInt(fields[4]),
          Text.choose("way", fields[5], Way.values(), OverlapTable::label));
    } catch (NumberFormatException | InvalidUsage e) {
      throw invalid(name, number, line, e.getMessage() + "; give " + FORM, e);
    }
  }

  private static InvalidUsage invalid(
      String name, int number, String line, String remedy, Throwable cause) {
    return new InvalidUsage(
        Text.of("overlap table %s, line %d: '%.200s': %s", name, number, line, remedy), cause);
  }

  static String label(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  /** Returns the rules, in ascending order of rows. */
  public List<Rule> rules() {
    return rules;
  }

  /**
   * Returns these rules and newer ones, which replace the rules of the same jobs.
   *
   * @throws InvalidUsage if two of the newer ones are for the same calls
   */
  public OverlapTable with(List<Rule> newer) {
    InvalidUsage.requireNonNull(newer, "overlap table", "newer");
    Set<String> jobs = newer.stream().map(Rule::job).collect(Collectors.toSet());
    List<Rule> all = new ArrayList<>(rules);
    all.removeIf(old -> jobs.contains(old.job()));
    all.addAll(newer);
    return new OverlapTable(all, "with newer rules");
  }

  /** Returns the way for an operation between ranks that can do both. */
  Way way(Operation operation, int ranks, ProductShape shape, int rows) {
    for (Rule rule : rules) {
      if (rule.operation == operation
          && rule.ranks == ranks
          && rule.inputs == shape.inputs()
          && rule.outputs == shape.outputs()
          && rows <= rule.upToRows) {
        return rule.way;
      }
    }
    long piece = rows / ranks;
    boolean pays =
        piece >= (ranks == 2 ? LEAST_ROWS_OF_PIECE_OF_PAIR : LEAST_ROWS_OF_PIECE)
            && piece * shape.inputs() * shape.outputs() >= LEAST_MULTIPLICATIONS_OF_PIECE;
    return pays ? Way.PIECES : Way.SERIAL;
  }

  /** Returns the text of the file. */
  public String toText() {
    return Stream.concat(Stream.of(HEADER), rules.stream().map(Rule::toLine))
        .collect(Collectors.joining("\n", "", "\n"));
  }
}
