package io.fluxccl.cli;

import java.io.PrintStream;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.Collectors;

/** What {@code --tune} finds: a line for each case, its algorithms with their times in order. */
final class TuningTable implements PerfListener {
  private final PrintStream out;

  TuningTable(PrintStream out) {
    this.out = out;
  }

  @Override
  public void started(PerfPlan plan, List<String> devices, Optional<String> peer) {
    line("# fluxccl " + Version.current() + " perf --tune, " + devices.size() + " ranks");
    devices.forEach(device -> line("#  " + device));
    line(
        String.format(
            "# %-12s  %12s  %8s  %s",
            "collective", "size (B)", "type", "algorithms, the chosen one first (us)"));
  }

  @Override
  public void tuned(PerfCase shape, long bytes, List<TuningRun.AlgorithmTime> times) {
    line(
        String.format(
            Locale.ROOT,
            "%-14s  %12d  %8s  %s",
            shape.collective().label(),
            bytes,
            shape.type().label(),
            times.stream()
                .map(t -> String.format(Locale.ROOT, "%s %.2f", t.algorithm(), t.micros()))
                .collect(Collectors.joining("  "))));
  }

  private void line(String text) {
    out.println(text);
    out.flush();
  }
}
