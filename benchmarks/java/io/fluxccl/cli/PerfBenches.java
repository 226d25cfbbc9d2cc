// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.benchmarks.Bench;
import io.fluxccl.benchmarks.Row;
import io.fluxccl.device.cuda.CudaDriver;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Benchmarks that run {@code perf}: 16-bit floats in graphs of 20 calls, a process for each GPU.
 */
final class PerfBenches {
  private static final List<String> COLLECTIVES =
      List.of("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-receive");

  static final List<Bench> ALL =
      List.of(
          Bench.onGpus(
                  2,
                  "collectives",
                  "all-reduce, all-gather, reduce-scatter, all-to-all, ring send-receive, beside"
                      + " NCCL",
                  (rows, arguments) -> collectives(rows))
              .within(270),
          Bench.onGpus(
              2,
              "types",
              "all-reduce of bfloat16 and float, and of unregistered buffers, beside half",
              (rows, arguments) -> types(rows)),
          Bench.onGpus(
              2,
              "one-jvm",
              "all-reduce in graphs from one JVM, beside a process for each GPU",
              (rows, arguments) -> oneJvm(rows)));

  /** Sizes that have goals. */
  private static final List<String> SIZES =
      List.of("1K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M", "1G");

  /** At most which share of NCCL's time a collective should take, by size; 0 for no goal. */
  private static final Map<String, double[]> ON_EIGHT =
      Map.of(
          "all-reduce", new double[] {.18, .21, .24, .29, .39, .57, .86, 1.00, 1.00, .97},
          "all-gather", new double[] {.24, .26, .24, .27, .40, .60, .84, 1.00, .98, .96},
          "reduce-scatter", new double[] {.24, .26, .27, .29, .45, .60, .77, .97, 1.00, .97},
          "all-to-all", new double[] {.35, .36, .37, .40, .46, .60, .92, .95, .95, .92},
          "send-receive", new double[] {.55, 0, 0, 0, .36, 0, .46, 0, 0, 1.00});

  private static final Map<String, double[]> ON_TWO =
      Map.of("all-reduce", new double[] {.38, 0, .38, .41, .44, .50, .76, .90, 0, .93});

  private PerfBenches() {}

  /** Returns the goal; on four GPUs, to be no slower at any size. */
  private static String goal(String collective, int ranks, String size) {
    double[] goals = (ranks == 8 ? ON_EIGHT : ON_TWO).get(collective);
    int at = SIZES.indexOf(size);
    double goal = ranks == 4 ? 1 : goals == null || at < 0 ? 0 : goals[at];
    return goal == 0 ? "" : "<= " + goal;
  }

  private static void collectives(Bench.Rows rows) throws IOException {
    int ranks = ranks();
    boolean compared = true;
    for (String collective : COLLECTIVES) {
      Outcome outcome = perf(compared, collective, "-b", "1K", "-e", "1G", "-f", "4", "-d", "half");
      if (compared && outcome.code == ExitCode.USAGE) {
        System.err.println(
            "NCCL was not found, so there are no ratios; set FLUXCCL_NCCL to its libnccl.so.2");
        compared = false;
        outcome = perf(false, collective, "-b", "1K", "-e", "1G", "-f", "4", "-d", "half");
      }
      long wrong = 0;
      String against = against(outcome.rows);
      for (Row row : outcome.rows) {
        String what = collective + " " + ranks + " GPUs/" + size(row);
        wrong += row.number("wrong").map(Number::longValue).orElse(0L);
        if (row.number("peer_time_us").isPresent()) {
          double peer = value(row, "peer_time_us");
          String goal = goal(collective, ranks, size(row));
          rows.compare(what, micros(row), peer, "us", against, goal);
        } else {
          rows.add(what, micros(row), "us");
        }
      }
      rows.add(collective + ", wrong elements", wrong, "", "<= 0");
      rows.add(collective + ", exit code", outcome.code, "", "<= 0");
    }
  }

  /** Returns the name of the peer, whichever of its ways was the faster one in each row. */
  private static String against(List<Row> rows) {
    List<String> names =
        rows.stream()
            .map(row -> row.text("peer"))
            .filter(name -> !name.isEmpty())
            .distinct()
            .sorted()
            .toList();
    String all = String.join(" and ", names);
    return names.size() < 2 ? all : "the faster of " + all;
  }

  private static void types(Bench.Rows rows) throws IOException {
    Map<String, Double> half = new HashMap<>();
    String[] sizes = {"all-reduce", "-b", "1K", "-f", "4", "-e"};
    for (Row row : perf(false, with(sizes, "256M", "-d", "half,bfloat16,float")).rows) {
      String type = row.text("dtype");
      if (type.equals("half")) {
        half.put(size(row), micros(row));
      } else {
        String goal = type.equals("float") ? "<= 1.10" : "<= 1.05";
        String what = "all-reduce " + size(row) + " of " + type;
        rows.compare(what, micros(row), half.get(size(row)), "us", "half", goal);
      }
    }
    for (Row row : perf(false, with(sizes, "1M", "-d", "half", "--no-register")).rows) {
      String what = "all-reduce " + size(row) + ", unregistered";
      rows.compare(what, micros(row), half.get(size(row)), "us", "registered", "<= 1.15");
    }
  }

  private static void oneJvm(Bench.Rows rows) throws IOException {
    String[] sizes = {"all-reduce", "-b", "1K", "-e", "256M", "-f", "8", "-d", "half"};
    Map<String, Double> processes = new HashMap<>();
    perf(false, sizes).rows.forEach(row -> processes.put(size(row), micros(row)));
    for (Row row : perf(false, with(sizes, "--in-process")).rows) {
      String what = "all-reduce " + size(row) + ", one JVM";
      rows.compare(
          what, micros(row), processes.get(size(row)), "us", "a process for each GPU", "<= 1.3");
    }
  }

  /** How {@code perf} ended, with the rows that it got to. */
  private record Outcome(int code, List<Row> rows) {}

  /** Runs {@code perf}, whose table goes to stderr. */
  @SuppressWarnings("unchecked")
  private static Outcome perf(boolean besideNccl, String... arguments) throws IOException {
    Path json = Files.createTempFile("fluxccl-bench", ".json");
    // Of this process's variables, those that make it a rank are not for the ranks that it starts.
    CliContext plain =
        new CliContext(new GroupBackend(), Main.class.getName(), Map.of(), System.err, System.err);
    CliContext context = besideNccl ? BenchMain.besideNccl(plain) : plain;
    try {
      String[] all = with(new String[] {"perf"}, arguments);
      all = with(all, "--ranks", "" + ranks(), "--graph", "20", "--device", "cuda");
      all = with(all, "--json", json.toString(), "--no-progress");
      int code = RootCommand.run(context, all);
      String text = Files.readString(json);
      List<Row> rows = new ArrayList<>();
      if (!text.isEmpty()) {
        ((List<Map<String, Object>>) Row.read(text)).forEach(each -> rows.add(new Row(each)));
      }
      return new Outcome(code, rows);
    } finally {
      Files.delete(json);
    }
  }

  /** Returns eight, four or two: the numbers of GPUs that there are goals for. */
  private static int ranks() {
    int gpus = CudaDriver.count();
    return gpus >= 8 ? 8 : gpus >= 4 ? 4 : 2;
  }

  private static String[] with(String[] some, String... more) {
    return Stream.of(some, more).flatMap(Stream::of).toArray(String[]::new);
  }

  private static double value(Row row, String field) {
    return row.number(field).orElseThrow().doubleValue();
  }

  private static double micros(Row row) {
    return value(row, "time_us");
  }

  /** Returns a size such as 64K. */
  private static String size(Row row) {
    long bytes = row.number("bytes").orElseThrow().longValue();
    int unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 3) {
      bytes /= 1024;
      unit++;
    }
    return bytes + List.of("", "K", "M", "G").get(unit);
  }
}
