// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import io.fluxccl.group.LongRun;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;

/**
 * Processes that are a rank of one job after the other, on pretended hosts. Some more than a job
 * needs are started ahead, so that no job waits for the start of the JVM that replaces a killed
 * one.
 */
final class RankPool implements AutoCloseable {
  private final List<Deque<FaultRankProcess>> idle = new ArrayList<>();
  private final List<FaultRankProcess> all = new ArrayList<>();

  /** Starts {@code each} processes on each of {@code hosts} hosts. */
  RankPool(int hosts, int each) throws IOException {
    for (int host = 0; host < hosts; host++) {
      idle.add(new ArrayDeque<>());
      for (int i = 0; i < each; i++) {
        start(host);
      }
    }
  }

  /** Starts one more process on a host. */
  void start(int host) throws IOException {
    Map<String, String> variables =
        Map.of(
            "FLUXCCL_HOSTID", "host" + host,
            // FluxCCL's own network over TCP, whatever plug-ins this machine has.
            "NCCL_NET_PLUGIN", "none",
            "NCCL_NET", "fluxccl");
    FaultRankProcess process =
        new FaultRankProcess(LongRun.class, List.of(), variables, LongRun.SERVE);
    all.add(process);
    idle.get(host).add(process);
  }

  /** Takes a process of a host that is in no job, rather one that was in some. */
  FaultRankProcess take(int host) {
    return idle.get(host).remove();
  }

  /** Gives a process back for the next job. */
  void give(int host, FaultRankProcess process) {
    process.process().forget();
    idle.get(host).addFirst(process);
  }

  /** Returns all processes that were ever started. */
  List<FaultRankProcess> all() {
    return all;
  }

  /** Returns the processes that are in no job. */
  List<FaultRankProcess> idle() {
    return idle.stream().flatMap(Deque::stream).toList();
  }

  @Override
  public void close() throws InterruptedException {
    for (FaultRankProcess process : all) {
      process.close();
    }
  }
}
