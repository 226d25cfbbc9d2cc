// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.Text;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The rows of {@code benchmarks/data}, and what is made of them: {@code benchmarks/RESULTS.md} and
 * the table of README.md.
 */
public final class Results {
  /** Encloses the table in README.md. */
  private static final String BEGIN = "<!-- figures: made of benchmarks/data -->\n";

  private static final String HEAD =
      "\n\n| what | ours / peer, ratio | goal | run |\n| --- | --- | --- | --- |\n";

  private static final String END = "<!-- figures end -->";

  /** The series of README's table, by the beginning of their ids. */
  private static final List<String> SHOWN =
      List.of(
          "collectives/all-reduce-2-gpus",
          "collectives/all-gather-2-gpus",
          "collectives/send-receive-2-gpus",
          "collectives/all-reduce-4-gpus",
          "collectives/all-reduce-2-gpus-mscclpp",
          "collectives/all-reduce-4-gpus-mscclpp",
          "nccl-net/pytorch-all-reduce",
          "host-collectives/all-reduce-in-place-2-ranks");

  private final Path root;
  private final Map<String, List<Row>> rows = new LinkedHashMap<>();

  private Results(Path root) {
    this.root = root;
  }

  /** Reads the rows of a checkout. */
  public static Results of(Path root) throws IOException {
    Results results = new Results(root);
    try (Stream<Path> files = Files.list(root.resolve("benchmarks/data"))) {
      for (Path file : files.sorted().toList()) {
        String area = file.getFileName().toString().replace(".jsonl", "");
        results.rows.put(area, Files.readAllLines(file).stream().map(Row::parse).toList());
      }
    }
    return results;
  }

  /** Returns all rows, by area. */
  public Map<String, List<Row>> rows() {
    return rows;
  }

  /** Writes both pages. */
  public void write() throws IOException {
    Files.writeString(root.resolve("benchmarks/RESULTS.md"), page());
    Files.writeString(root.resolve("README.md"), readme());
  }

  /** Returns the newest row of each id, the later one of a day. */
  private static List<Row> newest(List<Row> rows) {
    Map<String, Row> newest = new LinkedHashMap<>();
    rows.stream()
        .filter(row -> !row.isNote())
        .forEach(row -> newest.merge(row.text("id"), row, Results::newer));
    return List.copyOf(newest.values());
  }

  private static Row newer(Row a, Row b) {
    boolean isFirst = a.text("date").compareTo(b.text("date")) > 0;
    return isFirst ? a.orAs(b) : b.orAs(a);
  }

  /** Returns {@code benchmarks/RESULTS.md}. */
  public String page() {
    StringBuilder page =
        new StringBuilder(
"""
# Results

Written by `./fluxccl bench --write-results` from `benchmarks/data/AREA.jsonl`, which has all rows ever measured, with
commands and remarks. This page has the newest row of each measurement that has a goal or that a page cites: ours / the
peer's, ratio. Both sides are of one run on one machine. A ratio is ours over the peer's: below 1 is faster if it is of
times, above 1 if it is of bandwidths or rates.
""");
    List<String> machines = new ArrayList<>();
    for (Map.Entry<String, List<Row>> area : rows.entrySet()) {
      Map<List<String>, List<Row>> groups =
          newest(area.getValue()).stream()
              .filter(row -> !row.text("goal").isEmpty() || !row.text("cited").isEmpty())
              .collect(
                  Collectors.groupingBy(Results::line, LinkedHashMap::new, Collectors.toList()));
      if (!groups.isEmpty()) {
        page.append("\n## ").append(area.getKey());
        page.append(HEAD);
        groups.values().forEach(group -> page.append(line(group, machines)));
      }
    }
    page.append("\n## Machines\n\n");
    for (int i = 0; i < machines.size(); i++) {
      page.append("- ").append(letter(i)).append(": ").append(machines.get(i)).append('\n');
    }
    return page.toString();
  }

  /** Returns what rows of one line of the page have in common. */
  private static List<String> line(Row row) {
    String name = row.text("series").isEmpty() ? row.text("id") : row.text("series");
    return Stream.concat(
            Stream.of(name), Stream.of("unit", "machine", "date", "against").map(row::text))
        .toList();
  }

  private static String line(List<Row> rows, List<String> machines) {
    Row first = rows.get(0);
    boolean series = !first.text("series").isEmpty();
    String against = first.text("against");
    String what =
        first.text(series ? "series" : "what") + (against.isEmpty() ? "" : ", beside " + against);
    String unit = first.text("unit").isEmpty() ? "" : (series ? ", " : " ") + first.text("unit");
    String figures =
        series
            ? rows.stream()
                .map(row -> row.text("at") + ": " + figure(row, ""))
                .collect(Collectors.joining("; "))
            : figure(first, unit);
    if (!machines.contains(first.text("machine"))) {
      machines.add(first.text("machine"));
    }
    String run = letter(machines.indexOf(first.text("machine"))) + ", " + first.text("date");
    return "| "
        + String.join(" | ", series ? what + unit : what, figures, goal(rows), run)
        + " |\n";
  }

  private static String letter(int index) {
    return String.valueOf((char) ('A' + index));
  }

  /** Returns both sides, and the ratio. */
  private static String figure(Row row, String unit) {
    String peer = row.text("peer").isEmpty() ? "" : " / " + row.text("peer");
    String ratio = row.number("ratio").map(number -> ", " + Text.of("%.2f", number)).orElse("");
    return row.text("ours") + peer + unit + ratio;
  }

  private static String goal(List<Row> rows) {
    List<String> goals =
        rows.stream()
            .map(row -> row.text("goal"))
            .filter(goal -> !goal.isEmpty())
            .distinct()
            .sorted()
            .toList();
    if (goals.isEmpty()) {
      return "";
    }
    String most = goals.get(goals.size() - 1);
    String range = goals.size() == 1 ? "" : " to " + most.substring(most.lastIndexOf(' ') + 1);
    List<String> missed =
        rows.stream().filter(row -> !row.isReached()).map(row -> row.text("at")).toList();
    String verdict = missed.isEmpty() ? ": reached" : ": missed " + String.join(" ", missed);
    return goals.get(0) + range + verdict.stripTrailing();
  }

  /** Returns README.md with the table of today's rows. */
  public String readme() throws IOException {
    String text = Files.readString(root.resolve("README.md"));
    int begin = text.indexOf(BEGIN);
    int end = text.indexOf(END);
    if (begin < 0 || end < begin) {
      throw new IllegalArgumentException("README.md lacks the comments around its figures");
    }
    return text.substring(0, begin + BEGIN.length()) + table() + text.substring(end);
  }

  private String table() {
    Map<String, Row> byId = new LinkedHashMap<>();
    for (List<Row> area : rows.values()) {
      newest(area).forEach(row -> byId.put(row.text("id"), row));
    }
    List<String> columns = List.of("1 KiB", "64 KiB", "1 MiB", "64 MiB");
    StringBuilder table = new StringBuilder("| | " + String.join(" | ", columns) + " |\n");
    table.append("| --- ").append("| --- ".repeat(columns.size())).append("|\n");
    SHOWN.forEach(
        prefix -> {
          Row first = column(byId, prefix, columns.get(0));
          String machine = first.text("machine").replaceAll(" \\(.*", "");
          String against = first.text("against");
          table.append("| ").append(first.text("series")).append(", ").append(machine);
          table.append(" / ").append(against).append(" |");
          for (String size : columns) {
            Row row = column(byId, prefix, size);
            boolean same = row != null && row.text("against").equals(against);
            table
                .append(same ? " " + row.text("ours") + " / " + row.text("peer") : "")
                .append(" |");
          }
          table.append('\n');
        });
    return table.toString();
  }

  /** Returns a row by its size, which ids have as 64k or 64-kib; null if there is none. */
  private static Row column(Map<String, Row> byId, String prefix, String size) {
    String words = size.toLowerCase(Locale.ROOT).replace(' ', '-');
    String brief = prefix + "/" + words.replaceAll("-(.)ib", "$1");
    return byId.getOrDefault(prefix + "/" + words, byId.get(brief));
  }
}
