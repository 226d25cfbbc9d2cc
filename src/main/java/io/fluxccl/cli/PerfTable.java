package io.fluxccl.cli;

import java.io.PrintStream;
import java.util.List;
import java.util.Locale;

/** The table, in the columns of nccl-tests. Each row is flushed at once. */
final class PerfTable implements PerfListener {
  private final PrintStream out;
  private double busBandwidths;
  private int rows;
  private boolean checked;

  PerfTable(PrintStream out) {
    this.out = out;
  }

  @Override
  public void started(PerfPlan plan, List<String> devices) {
    checked = plan.checks() > 0;
    line("# fluxccl %s perf all-reduce, in place", Version.current());
    line(
        "# nRanks %d %s warmup iters: %d iters: %s validate: %d",
        devices.size(),
        plan.sizes(),
        plan.warmUpIterations(),
        plan.iterations().isPresent()
            ? plan.iterations().getAsInt()
            : AllReduceBenchmark.LEAST_ITERATIONS
                + " or more, for at least "
                + AllReduceBenchmark.LEAST_TIME.toMillis()
                + " ms",
        plan.checks());
    line(
        "# JIT warm-up: the collective runs for %.1f s before the first row",
        plan.jitWarmUp().toNanos() / 1e9);
    line("#");
    line("# Using devices");
    devices.forEach(device -> line("#  %s", device));
    line("#");
    line(
        "# %10s  %12s  %8s  %6s  %7s  %6s  %6s  %6s",
        "size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong");
    line(
        "# %10s  %12s  %8s  %6s  %7s  %6s  %6s  %6s",
        "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "");
  }

  @Override
  public void measured(PerfRow row) {
    busBandwidths += row.busBandwidth();
    rows++;
    line(
        "%12d  %12d  %8s  %6s  %7s  %6.2f  %6.2f  %6s",
        row.measured().bytes(),
        row.measured().count(),
        row.measured().type().label(),
        row.measured().op().label(),
        time(row.timeMicros()),
        row.algorithmBandwidth(),
        row.busBandwidth(),
        row.wrong().isPresent() ? Long.toString(row.wrong().getAsLong()) : "N/A");
  }

  @Override
  public void finished(long wrong) {
    if (checked) {
      line("# Out of bounds values : %d %s", wrong, wrong == 0 ? "OK" : "FAILED");
    } else {
      line("# Out of bounds values : not checked");
    }
    line("# Avg bus bandwidth    : %.4f", busBandwidths / rows);
    line("#");
  }

  private static String time(double micros) {
    String form = micros >= 10_000 ? "%.0f" : micros >= 1_000 ? "%.1f" : "%.2f";
    return String.format(Locale.ROOT, form, micros);
  }

  private void line(String form, Object... arguments) {
    out.println(String.format(Locale.ROOT, form, arguments));
    out.flush();
  }
}
