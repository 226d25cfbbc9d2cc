// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A job of three {@link AllReduceLoopRank}s on two hosts: ranks 0 and 1 on one, the last on the
 * other.
 */
final class SteadyJob implements AutoCloseable {
  static final int RANKS = 3;
  static final int LAST_RANK = RANKS - 1;
  static final String FOLDER = "FLUXCCL_RUNTIME_DIR";
  private static final int PORT = 29_617;

  private final List<FaultRankProcess> ranks = new ArrayList<>();

  private final String address;

  /**
   * Starts the ranks, and waits until they work. Of a given folder, each host has one within it.
   */
  SteadyJob(TwoHosts hosts, int limitSeconds, Map<String, String> more) throws Exception {
    Map<String, String> variables = new HashMap<>(more);
    variables.put("FLUXCCL_NRANKS", Integer.toString(RANKS));
    address = hosts.address(0) + ":" + PORT;
    variables.put("FLUXCCL_ADDR", address);
    variables.putIfAbsent("FLUXCCL_SECRET", JobSecret.random().text());
    variables.put("FLUXCCL_TIMEOUT", Integer.toString(limitSeconds));
    // For NET: FluxCCL's own network over TCP, whatever plug-ins this machine has.
    variables.put("NCCL_NET_PLUGIN", "none");
    variables.put("NCCL_NET", "fluxccl");
    for (int rank = 0; rank < RANKS; rank++) {
      int host = rank == LAST_RANK ? 1 : 0;
      variables.put("FLUXCCL_RANK", Integer.toString(rank));
      variables.put("FLUXCCL_HOSTID", "host" + host);
      variables.computeIfPresent(FOLDER, (name, set) -> more.get(FOLDER) + "/" + host);
      ranks.add(new FaultRankProcess(AllReduceLoopRank.class, hosts.inside(host), variables));
    }
    awaitMoreSteps();
  }

  String address() {
    return address;
  }

  FaultRankProcess rank(int rank) {
    return ranks.get(rank);
  }

  List<FaultRankProcess> ranks() {
    return ranks;
  }

  /** Waits until every rank has made steps that began after now, with the right results. */
  void awaitMoreSteps() {
    long most = ranks.stream().mapToLong(FaultRankProcess::steps).max().orElse(0);
    ranks.forEach(rank -> rank.awaitStep(most + 3));
    assertThat(isWrong()).isFalse();
  }

  /** Returns whether a rank has had a wrong result. */
  boolean isWrong() {
    return ranks.stream().anyMatch(rank -> rank.last("wrong") != null);
  }

  /** Returns how many lines of all ranks contain that. */
  long count(String line) {
    return ranks.stream().mapToLong(rank -> rank.count(line)).sum();
  }

  @Override
  public void close() throws InterruptedException {
    for (FaultRankProcess rank : ranks) {
      rank.close();
    }
  }
}
