// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import java.util.HashMap;
import java.util.Map;

/** Cost of other types and unregistered buffers, relative to registered 16-bit floats. */
final class TypeFigures implements FigureSection {
  private static final double BFLOAT16_AT_MOST = 1.05;
  private static final double FLOAT_AT_MOST = 1.10;
  private static final double UNREGISTERED_AT_MOST = 1.15;

  @Override
  public String name() {
    return "types";
  }

  @Override
  public String description() {
    return "all-reduce of bfloat16 and float, and of unregistered buffers, next to half";
  }

  @Override
  public int gpus() {
    return 2;
  }

  @Override
  public void measure(Figures figures) throws Exception {
    String ranks = "" + PerfProcess.ranks();
    Map<Long, Double> half = new HashMap<>();
    for (PerfProcess.Row row : perf(ranks, "256M", "half,bfloat16,float", "--register")) {
      String what = "all-reduce " + PerfProcess.size(row.bytes()) + ", " + row.type() + " of half";
      if (row.type().equals("half")) {
        half.put(row.bytes(), row.micros());
      } else {
        double most = row.type().equals("float") ? FLOAT_AT_MOST : BFLOAT16_AT_MOST;
        figures.addAtMost(what, row.micros() / half.get(row.bytes()), "", most);
      }
    }
    for (PerfProcess.Row row : perf(ranks, "1M", "half", "--no-register")) {
      String what = "all-reduce " + PerfProcess.size(row.bytes()) + ", unregistered of registered";
      figures.addAtMost(what, row.micros() / half.get(row.bytes()), "", UNREGISTERED_AT_MOST);
    }
  }

  private static Iterable<PerfProcess.Row> perf(
      String ranks, String largest, String types, String registering) throws Exception {
    return PerfProcess.perf(
            "all-reduce",
            "--ranks",
            ranks,
            "-b",
            "1K",
            "-e",
            largest,
            "-f",
            "4",
            "-d",
            types,
            "--graph",
            "20",
            "--device",
            "cuda",
            registering)
        .rows();
  }
}
