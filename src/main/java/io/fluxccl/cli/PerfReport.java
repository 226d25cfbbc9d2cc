// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Text;
import io.fluxccl.cli.PerfReport.PerfRow.PeerTime;
import io.fluxccl.trace.Snapshot;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.stream.Collectors;

/**
 * Reports a run as it goes, on rank 0: a table in the columns of nccl-tests, the JSON file and the
 * progress. Each line is flushed at once.
 */
final class PerfReport {
  private static final String COLUMNS = "%12s  %12s  %8s  %6s  %4s%s%s%s";
  private static final String GROUP = "  %9s  %6s  %6s  %6s";
  private static final String NONE = "N/A";

  private final PrintStream out;
  private final Progress progress;
  private final Optional<PerfJson> json;
  private boolean compared;
  private double busBandwidths;
  private int rows;

  /**
   * A report.
   *
   * @param out takes the table
   * @param progress shows what is measured next
   * @param json takes the rows too, if a file was asked for
   */
  PerfReport(PrintStream out, Progress progress, Optional<Path> json) {
    this.out = out;
    this.progress = progress;
    this.json = json.map(PerfJson::new);
  }

  /**
   * Prints the head of the table.
   *
   * @param plan what is going to be measured
   * @param devices a line for each rank
   * @param peers ways of the library that is measured too
   */
  void started(PerfPlan plan, List<String> devices, List<String> peers) {
    compared = !peers.isEmpty();
    line(
        "# fluxccl %s perf %s",
        RootCommand.Version.current(), plan.cases().get(0).collective().label());
    line(
        "# nRanks %d %s warmup iters: %d iters: %s validate: %d graph: %s",
        devices.size(),
        plan.sizes(),
        plan.warmUpIterations(),
        plan.iterations().isPresent()
            ? plan.iterations().get()
            : Text.of(
                "%d or more, for at least %d ms, median of %d rounds",
                CallTimer.LEAST_ITERATIONS, CallTimer.LEAST_TIME.toMillis(), CallTimer.ROUNDS),
        plan.checks(),
        plan.graph().map(calls -> calls + " calls").orElse("none"));
    line(
        "# JIT warm-up: the collective runs until the JVM compiles no more, for %.1f s at most",
        plan.jitWarmUp().toNanos() / 1e9);
    if (compared) {
      line(
          "# peer: %s, same run, row by row; ratio: our best time over its best",
          String.join(" or ", peers));
    }
    listDevices("#\n# Using devices", devices);
    line("#\n#%51s  %-33s  %s", "", "        out-of-place", "        in-place");
    String names = Text.of(GROUP, "time", "algbw", "busbw", "#wrong");
    String end = compared ? "       peer   ratio  peer" : "";
    line(COLUMNS, "#       size", "count", "type", "redop", "root", names, names, end);
    String units = Text.of(GROUP, "(us)", "(GB/s)", "(GB/s)", "");
    String unitsEnd = compared ? "       (us)" : "";
    line(COLUMNS, "#        (B)", "(elements)", "", "", "", units, units, unitsEnd);
    progress.started(devices.size(), plan.cases().size());
  }

  /** Prints the head of the table of a tuning run. */
  void tuningStarted(PerfPlan plan, List<String> devices) {
    line("# fluxccl %s perf --tune, %d ranks", RootCommand.Version.current(), devices.size());
    listDevices("# Using devices", devices);
    line(
        "# %-12s  %12s  %8s  %s",
        "collective", "size (B)", "type", "algorithms, the chosen one first (us)");
    progress.started(devices.size(), plan.cases().size());
  }

  private void listDevices(String title, List<String> devices) {
    line("%s", title);
    devices.forEach(device -> line("#  %s", device));
  }

  /** Shows that a case is about to be measured. */
  void measuring(PerfCase next) {
    progress.measuring(next);
  }

  /** Adds a row. */
  void measured(PerfRow row) {
    progress.clear();
    json.ifPresent(file -> file.add(row));
    busBandwidths += row.busBandwidth(row.micros());
    rows++;
    PerfCase shape = row.measured();
    line(
        COLUMNS,
        row.bytes(),
        shape.count(),
        shape.type().label(),
        shape.opLabel(),
        shape.rootOrNone(),
        group(row, BufferAliasing.OUT_OF_PLACE),
        group(row, BufferAliasing.IN_PLACE),
        compared ? comparison(row) : "");
  }

  private static String group(PerfRow row, BufferAliasing placement) {
    PerfRow.Measurement measured = row.byPlacement().get(placement);
    if (measured == null) {
      return Text.of(GROUP, NONE, NONE, NONE, NONE);
    }
    double micros = measured.micros();
    return Text.of(
        GROUP,
        time(micros),
        Text.of("%.2f", row.algorithmBandwidth(micros)),
        Text.of("%.2f", row.busBandwidth(micros)),
        measured.wrong().isPresent() ? measured.wrong().getAsLong() : NONE);
  }

  private static String comparison(PerfRow row) {
    return row.peer()
        .map(
            peer ->
                Text.of(
                    "  %9s  %6.3f  %s",
                    time(peer.micros()), row.micros() / peer.micros(), peer.name()))
        .orElse(Text.of("  %9s  %6s", NONE, NONE));
  }

  /** Adds a case of a tuning run, with its algorithms, the chosen one first. */
  void tuned(PerfCase shape, long bytes, List<TuningRun.AlgorithmTime> times) {
    progress.clear();
    line(
        "%-14s  %12d  %8s  %s",
        shape.collective().label(),
        bytes,
        shape.type().label(),
        times.stream()
            .map(each -> Text.of("%s %.2f", each.algorithm(), each.micros()))
            .collect(Collectors.joining("  ")));
  }

  /**
   * Prints the sums.
   *
   * @param checked whether elements were checked
   * @param wrong how many elements of all rows were wrong
   */
  void finished(boolean checked, long wrong) {
    String verdict = wrong + (wrong == 0 ? " OK" : " FAILED");
    line("# Out of bounds values : %s", checked ? verdict : "not checked");
    line("# Avg bus bandwidth    : %.4f", busBandwidths / rows);
    line("#");
  }

  private static String time(double micros) {
    return Text.of(micros >= 10_000 ? "%.0f" : micros >= 1_000 ? "%.1f" : "%.2f", micros);
  }

  private void line(String form, Object... arguments) {
    out.println(Text.of(form, arguments));
    out.flush();
  }

  /** The rows as a JSON array in a file, which is complete after each row. */
  private final class PerfJson {
    private final ResultFile file;
    private final List<String> rows = new ArrayList<>();

    /**
     * Writes an empty array.
     *
     * @param path of the file
     * @throws io.fluxccl.InvalidUsage if it can't be written
     */
    PerfJson(Path path) {
      this.file = new ResultFile("json", path);
      file.requireWritable();
      write();
    }

    /** Adds a row. */
    void add(PerfRow row) {
      rows.add(tree(row).toString());
      write();
    }

    private void write() {
      file.write("[ " + String.join(", ", rows) + (rows.isEmpty() ? "]" : " ]"));
    }

    private static Snapshot tree(PerfRow row) {
      PerfCase shape = row.measured();
      Snapshot head =
          Snapshot.EMPTY
              .with("op", shape.collective().label())
              .with("ranks", row.nRanks())
              .with("bytes", row.bytes())
              .with("count", shape.count())
              .with("dtype", shape.type().label())
              .with("redop", shape.opLabel())
              .with("root", shape.rootOrNone());
      Snapshot tree = withTimes(head, row, row.micros(), row.peer(), row.wrong());
      for (Map.Entry<BufferAliasing, PerfRow.Measurement> each : row.byPlacement().entrySet()) {
        PerfRow.Measurement part = each.getValue();
        Snapshot algorithm = Snapshot.EMPTY.with("algorithm", part.algorithm());
        tree =
            tree.with(
                each.getKey().name().toLowerCase(Locale.ROOT),
                withTimes(algorithm, row, part.micros(), part.peer(), part.wrong()));
      }
      return tree;
    }

    private static Snapshot withTimes(
        Snapshot tree, PerfRow row, double micros, Optional<PeerTime> peer, OptionalLong wrong) {
      return tree.with("time_us", micros)
          .with("algbw_gbs", row.algorithmBandwidth(micros))
          .with("busbw_gbs", row.busBandwidth(micros))
          .with("peer", peer.map(PeerTime::name).orElse(null))
          .with("peer_time_us", peer.map(PeerTime::micros).orElse(null))
          .with("ratio", peer.map(time -> micros / time.micros()).orElse(null))
          .with("wrong", wrong.isPresent() ? wrong.getAsLong() : Snapshot.UNKNOWN);
    }
  }

  /**
   * One measured row, in the units of nccl-tests: decimal gigabytes.
   *
   * @param measured the case
   * @param nRanks how many ranks took part
   * @param byPlacement the measurements by placement, one at least
   */
  record PerfRow(PerfCase measured, int nRanks, Map<BufferAliasing, Measurement> byPlacement) {
    /**
     * A case in one placement.
     *
     * @param algorithm its name; empty where there is no choice
     * @param micros of one call, averaged over the calls and ranks
     * @param wrong how many elements of all ranks were wrong, or empty when none was checked
     * @param peer the faster way of the library that this one is compared with
     */
    record Measurement(
        String algorithm, double micros, OptionalLong wrong, Optional<PeerTime> peer) {}

    /**
     * The time of one call of another library.
     *
     * @param name of the library, and how it was used
     */
    record PeerTime(String name, double micros) {}

    /** Returns the size of the case. */
    long bytes() {
      return measured.bytes(nRanks);
    }

    /** Returns the time in the faster placement. */
    double micros() {
      return byPlacement.values().stream().mapToDouble(Measurement::micros).min().orElseThrow();
    }

    /** Returns the peer's time in its faster placement, if it was measured. */
    Optional<PeerTime> peer() {
      return byPlacement.values().stream()
          .flatMap(measurement -> measurement.peer().stream())
          .min(Comparator.comparingDouble(PeerTime::micros));
    }

    /** Returns how many elements were wrong in all placements; empty if none was checked. */
    OptionalLong wrong() {
      return byPlacement.values().stream().allMatch(m -> m.wrong().isEmpty())
          ? OptionalLong.empty()
          : OptionalLong.of(
              byPlacement.values().stream().mapToLong(m -> m.wrong().orElse(0)).sum());
    }

    /** Returns the size divided by the time, in GB/s. */
    double algorithmBandwidth(double micros) {
      return bytes() / micros / 1e3;
    }

    /** Returns the bandwidth that a bus would need, in GB/s. */
    double busBandwidth(double micros) {
      return algorithmBandwidth(micros) * measured.busFactor(nRanks);
    }
  }
}
