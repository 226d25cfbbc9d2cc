// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Text;
import java.io.PrintStream;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
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
  private String peer = "";
  private double busBandwidths;
  private int rows;

  /**
   * A report.
   *
   * @param out takes the table
   * @param progress shows what is measured next
   * @param json takes the rows too, if a file was asked for
   */
  PerfReport(PrintStream out, Progress progress, Optional<PerfJson> json) {
    this.out = out;
    this.progress = progress;
    this.json = json;
  }

  /**
   * Prints the head of the table.
   *
   * @param plan what is going to be measured
   * @param devices a line for each rank
   * @param comparedWith name of the library that is measured too
   */
  void started(PerfPlan plan, List<String> devices, Optional<String> comparedWith) {
    peer = comparedWith.orElse("");
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
    comparedWith.ifPresent(
        name -> line("# peer: %s, same run, row by row; ratio: our best time over its best", name));
    listDevices("#\n# Using devices", devices);
    line("#\n#%51s  %-33s  %s", "", "        out-of-place", "        in-place");
    boolean compared = comparedWith.isPresent();
    String names = Text.of(GROUP, "time", "algbw", "busbw", "#wrong");
    String end = compared ? "       peer   ratio" : "";
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
    json.ifPresent(file -> file.add(row, peer));
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
        peer.isEmpty() ? "" : comparison(row));
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
    OptionalDouble micros = row.peerMicros();
    return micros.isPresent()
        ? Text.of("  %9s  %6.3f", time(micros.getAsDouble()), row.ratio().getAsDouble())
        : Text.of("  %9s  %6s", NONE, NONE);
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
}
