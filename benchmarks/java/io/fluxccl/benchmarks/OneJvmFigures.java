// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** One JVM that drives all GPUs, next to a process for each. */
final class OneJvmFigures implements FigureSection {
  private static final double AT_MOST = 1.3;

  @Override
  public String name() {
    return "one-jvm";
  }

  @Override
  public String description() {
    return "all-reduce in graphs from one JVM, next to a process for each GPU";
  }

  @Override
  public int gpus() {
    return 2;
  }

  @Override
  public void measure(Figures figures) throws Exception {
    Map<Long, Double> processes = new HashMap<>();
    for (PerfProcess.Row row : perf(false)) {
      processes.put(row.bytes(), row.micros());
    }
    for (PerfProcess.Row row : perf(true)) {
      String what = "all-reduce " + PerfProcess.size(row.bytes());
      figures.add(what + ", one JVM", row.micros(), "us");
      figures.addAtMost(
          what + ", one JVM of processes", row.micros() / processes.get(row.bytes()), "", AT_MOST);
    }
  }

  private static List<PerfProcess.Row> perf(boolean inProcess) throws Exception {
    List<String> arguments =
        new ArrayList<>(List.of("all-reduce", "--ranks", "" + PerfProcess.ranks()));
    arguments.addAll(List.of("-b", "1K", "-e", "256M", "-f", "8", "-d", "half", "--graph", "20"));
    arguments.addAll(List.of("--device", "cuda"));
    if (inProcess) {
      arguments.add("--in-process");
    }
    return PerfProcess.perf(arguments.toArray(String[]::new)).rows();
  }
}
