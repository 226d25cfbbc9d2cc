// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.Timeout;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;

/**
 * Two ranks in two processes that run all scenarios one after the other. Restarted after a failed
 * scenario.
 */
final class ScenarioProcesses implements AutoCloseable {
  private static final int RANKS = 2;
  private static final List<Scenario> ALL = Arrays.asList(Scenario.values());

  private final int gpus;
  private ProcessRanks processes;

  ScenarioProcesses(int gpus) {
    this.gpus = gpus;
  }

  /**
   * Waits for a scenario's outcome on both ranks; called for each scenario in order.
   *
   * @throws AssertionError with what a rank said, if it failed
   */
  void await(Scenario scenario) {
    if (processes == null) {
      start(ALL.subList(scenario.ordinal(), ALL.size()));
    }
    List<String> failures = new ArrayList<>();
    for (int rank = 0; rank < RANKS; rank++) {
      String outcome = outcome(processes.get(rank), "scenario " + scenario + " ");
      if (!outcome.equals("ok")) {
        failures.add("rank " + rank + ": " + outcome.replace("\\n", "\n"));
      }
    }
    if (!failures.isEmpty()) {
      close();
      throw new AssertionError(String.join("\n", failures));
    }
  }

  private static String outcome(ProcessRank process, String start) {
    try {
      for (String line = process.readLine(); line != null; line = process.readLine()) {
        if (line.startsWith(start)) {
          return line.substring(start.length());
        }
        System.out.println(line);
      }
      return "the process ended without a word";
    } catch (Timeout e) {
      return "silent for too long: " + e;
    }
  }

  private void start(List<Scenario> scenarios) {
    String[] args =
        Stream.concat(Stream.of(Integer.toString(gpus)), scenarios.stream().map(Enum::name))
            .toArray(String[]::new);
    processes =
        TestJvms.of(RANKS, ScenarioRankMain.class, args)
            .jvmOptions("-Xmx512m", "-Dfluxccl.test.memory=" + GpuRank.MEMORY)
            .start();
  }

  @Override
  public void close() {
    if (processes != null) {
      processes.close();
      processes = null;
    }
  }
}
