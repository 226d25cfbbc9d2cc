// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.device.host.ChildJvm;
import java.io.IOException;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Two ranks in two processes that run all scenarios one after the other; started anew behind one
 * that fails.
 */
final class RankProcesses implements AutoCloseable {
  private static final int RANKS = 2;
  private static final List<Scenario> ALL = Arrays.asList(Scenario.values());

  private final int gpus;
  private List<ChildJvm> processes = List.of();

  RankProcesses(int gpus) {
    this.gpus = gpus;
  }

  /**
   * Waits for a scenario's outcome on both ranks; called for each scenario in order.
   *
   * @throws AssertionError with what a rank said, if it failed
   */
  void await(Scenario scenario) throws Exception {
    if (processes.isEmpty()) {
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

  private static String outcome(ChildJvm process, String start) {
    try {
      for (String line = process.readLine(); line != null; line = process.readLine()) {
        if (line.startsWith(start)) {
          return line.substring(start.length());
        }
        System.out.println(line);
      }
      return "the process ended without a word";
    } catch (Exception e) {
      return "silent for too long: " + e;
    }
  }

  private void start(List<Scenario> scenarios) throws IOException {
    String[] args =
        Stream.concat(Stream.of(Integer.toString(gpus)), scenarios.stream().map(Enum::name))
            .toArray(String[]::new);
    String address;
    try (ServerSocket probe = new ServerSocket(0)) {
      address = "127.0.0.1:" + probe.getLocalPort();
    }
    String secret = JobSecret.random().text();
    processes = new ArrayList<>();
    for (int rank = 0; rank < RANKS; rank++) {
      processes.add(
          ChildJvm.start(
              RankProcess.class,
              List.of("-Xmx512m", "-Dfluxccl.test.memory=" + GpuRank.MEMORY),
              Map.of(
                  "FLUXCCL_RANK",
                  Integer.toString(rank),
                  "FLUXCCL_NRANKS",
                  Integer.toString(RANKS),
                  "FLUXCCL_ADDR",
                  address,
                  "FLUXCCL_SECRET",
                  secret),
              args));
    }
  }

  @Override
  public void close() throws InterruptedException {
    for (ChildJvm process : processes) {
      process.kill();
    }
    processes = List.of();
  }
}
