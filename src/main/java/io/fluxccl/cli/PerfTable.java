package io.fluxccl.cli;

import java.io.PrintStream;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalDouble;

/** The table, in the columns of nccl-tests. Each row is flushed at once. */
final class PerfTable implements PerfListener {
  private static final String GROUP = "  %9s  %6s  %6s  %6s";
  private static final String NONE = "N/A";

  private final PrintStream out;
  private double busBandwidths;
  private int rows;
  private boolean checked;
  private boolean compared;

  PerfTable(PrintStream out) {
    this.out = out;
  }

  @Override
  public void started(PerfPlan plan, List<String> devices, Optional<String> peer) {
    checked = plan.checks() > 0;
    compared = peer.isPresent();
    line("# fluxccl %s perf %s", Version.current(), plan.cases().get(0).collective().label());
    line(
        "# nRanks %d %s warmup iters: %d iters: %s validate: %d graph: %s",
        devices.size(),
        plan.sizes(),
        plan.warmUpIterations(),
        plan.iterations().isPresent()
            ? plan.iterations().getAsInt()
            : CallTimer.LEAST_ITERATIONS
                + " or more, for at least "
                + CallTimer.LEAST_TIME.toMillis()
                + " ms, median of "
                + CallTimer.ROUNDS
                + " rounds",
        plan.checks(),
        plan.graph().isPresent() ? plan.graph().getAsInt() + " calls" : "none");
    line(
        "# JIT warm-up: the collective runs until the JVM compiles no more, for %.1f s at most",
        plan.jitWarmUp().toNanos() / 1e9);
    peer.ifPresent(
        name -> line("# peer: %s, same run, row by row; ratio: our best time over its best", name));
    line("#");
    line("# Using devices");
    devices.forEach(device -> line("#  %s", device));
    line("#");
    line("#%51s  %-33s  %s", "", "        out-of-place", "        in-place");
    line(
        "# %10s  %12s  %8s  %6s  %4s" + GROUP + GROUP + "%s",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        compared ? "       peer   ratio" : "");
    line(
        "# %10s  %12s  %8s  %6s  %4s" + GROUP + GROUP + "%s",
        "(B)",
        "(elements)",
        "",
        "",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        "",
        compared ? "       (us)" : "");
  }

  @Override
  public void measured(PerfRow row) {
    busBandwidths += row.busBandwidth(row.micros());
    rows++;
    PerfCase shape = row.measured();
    StringBuilder text = new StringBuilder();
    text.append(
        String.format(
            Locale.ROOT,
            "%12d  %12d  %8s  %6s  %4d",
            row.bytes(),
            shape.count(),
            shape.type().label(),
            shape.op() == null ? "none" : shape.op().label(),
            shape.collective().hasRoot() ? shape.root() : -1));
    for (Placement placement : Placement.values()) {
      text.append(group(row, row.in(placement)));
    }
    if (compared) {
      OptionalDouble peer = row.peerMicros();
      text.append(
          String.format(
              Locale.ROOT,
              "  %9s  %6s",
              peer.isPresent() ? time(peer.getAsDouble()) : NONE,
              peer.isPresent()
                  ? String.format(Locale.ROOT, "%.3f", row.ratio().getAsDouble())
                  : NONE));
    }
    line("%s", text);
  }

  private static String group(PerfRow row, Optional<PerfRow.Measurement> measured) {
    if (measured.isEmpty()) {
      return String.format(GROUP, NONE, NONE, NONE, NONE);
    }
    double micros = measured.get().micros();
    return String.format(
        Locale.ROOT,
        GROUP,
        time(micros),
        String.format(Locale.ROOT, "%.2f", row.algorithmBandwidth(micros)),
        String.format(Locale.ROOT, "%.2f", row.busBandwidth(micros)),
        measured.get().wrong().isPresent()
            ? Long.toString(measured.get().wrong().getAsLong())
            : NONE);
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
