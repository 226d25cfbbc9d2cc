// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import java.util.ArrayList;
import java.util.List;
import java.util.OptionalDouble;

/** Collectives beside NCCL's: 16-bit floats, graphs of 20 calls, a process for each GPU. */
final class CollectiveFigures implements FigureSection {
  private static final List<String> COLLECTIVES =
      List.of("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-receive");

  @Override
  public String name() {
    return "collectives";
  }

  @Override
  public String description() {
    return "all-reduce, all-gather, reduce-scatter, all-to-all, ring send-receive beside NCCL";
  }

  @Override
  public int gpus() {
    return 2;
  }

  @Override
  public int limit() {
    return 270;
  }

  @Override
  public void measure(Figures figures) throws Exception {
    int ranks = PerfProcess.ranks();
    boolean compared = true;
    for (String collective : COLLECTIVES) {
      PerfProcess.Outcome outcome = perf(collective, ranks, compared);
      if (compared && outcome.code() == PerfProcess.USAGE) {
        System.err.println("without NCCL there are no ratios; FLUXCCL_NCCL says where it is");
        compared = false;
        outcome = perf(collective, ranks, false);
      }
      tell(figures, collective, ranks, outcome);
    }
  }

  private static PerfProcess.Outcome perf(String collective, int ranks, boolean compared)
      throws Exception {
    List<String> arguments = new ArrayList<>(List.of(collective, "--ranks", "" + ranks));
    arguments.addAll(List.of("-b", "1K", "-e", "1G", "-f", "4", "-d", "half", "--graph", "20"));
    arguments.addAll(List.of("--device", "cuda"));
    if (compared) {
      arguments.addAll(List.of("--compare", "nccl"));
    }
    return PerfProcess.perf(arguments.toArray(String[]::new));
  }

  private static void tell(
      Figures figures, String collective, int ranks, PerfProcess.Outcome outcome) {
    long wrong = 0;
    for (PerfProcess.Row row : outcome.rows()) {
      String what = collective + " " + PerfProcess.size(row.bytes()) + ", " + ranks + " GPUs";
      wrong += row.wrong();
      figures.add(what, row.micros(), "us");
      OptionalDouble goal = CollectiveGoals.of(collective, ranks, row.bytes());
      if (!Double.isNaN(row.ratio()) && goal.isPresent()) {
        figures.addAtMost(what + ", of NCCL's time", row.ratio(), "", goal.getAsDouble());
      } else if (!Double.isNaN(row.ratio())) {
        figures.add(what + ", of NCCL's time", row.ratio(), "");
      }
    }
    figures.addAtMost(collective + ", wrong elements", wrong, "", 0);
    figures.addAtMost(collective + ", exit code", outcome.code(), "", 0);
  }
}
