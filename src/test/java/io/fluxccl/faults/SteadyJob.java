// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.agrona.CloseHelper;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A job of three {@link AllReduceLoopRank}s on two hosts: ranks 0 and 1 on one, the last on the
 * other. Ends after each test, with the hosts.
 */
final class SteadyJob implements AfterEachCallback {
  static final int RANKS = 3;
  static final int LAST_RANK = RANKS - 1;
  static final String FOLDER = "FLUXCCL_RUNTIME_DIR";
  private static final int PORT = 29_617;

  private TwoHosts hosts;
  private ProcessRanks ranks;

  /**
   * Starts the ranks, and waits until they work.
   *
   * @param onHosts which the job then closes
   * @param folder in which each host has one of its own, for the files of its jobs
   */
  void start(TwoHosts onHosts, Path folder, int limitSeconds, Map<String, String> variables) {
    hosts = onHosts;
    ranks =
        TestJvms.withLog(RANKS, AllReduceLoopRank.class, "100003")
            .failure("failed")
            .prefixByRank(rank -> hosts.inside(host(rank)))
            .variables(
                Map.of(
                    "FLUXCCL_ADDR",
                    address(),
                    "FLUXCCL_TIMEOUT",
                    Integer.toString(limitSeconds),
                    // For NET: FluxCCL's own network over TCP, whatever plug-ins this machine has.
                    "NCCL_NET_PLUGIN",
                    "none",
                    "NCCL_NET",
                    "fluxccl"))
            .variables(variables)
            .variablesByRank(
                rank ->
                    Map.of(
                        "FLUXCCL_HOSTID",
                        "host" + host(rank),
                        FOLDER,
                        folder.resolve("" + host(rank)).toString()))
            .start();
    awaitMoreSteps();
  }

  private static int host(int rank) {
    return rank == LAST_RANK ? 1 : 0;
  }

  String address() {
    return hosts.address(0) + ":" + PORT;
  }

  TwoHosts hosts() {
    return hosts;
  }

  ProcessRank rank(int rank) {
    return ranks.get(rank);
  }

  List<ProcessRank> ranks() {
    return ranks.all();
  }

  /** Returns the number of the last step that a rank has printed, -1 before the first. */
  private static long steps(ProcessRank rank) {
    String line = rank.last("steps ");
    return line == null ? -1 : Long.parseLong(line.substring("steps ".length()));
  }

  /** Waits until every rank has made steps that began after now, with the right results. */
  void awaitMoreSteps() {
    long next = ranks().stream().mapToLong(SteadyJob::steps).max().orElse(0) + 3;
    for (ProcessRank rank : ranks()) {
      rank.await(each -> steps(each) >= next || each.last("failed") != null, "step " + next);
      assertThat(steps(rank)).as(rank.output()).isGreaterThanOrEqualTo(next);
    }
    assertThat(isWrong()).isFalse();
  }

  /** Returns whether a rank has had a wrong result. */
  boolean isWrong() {
    return ranks().stream().anyMatch(rank -> rank.last("wrong") != null);
  }

  /** Returns how many lines of all ranks contain that. */
  long count(String line) {
    return ranks().stream().mapToLong(rank -> rank.count(line)).sum();
  }

  @Override
  public void afterEach(ExtensionContext context) {
    CloseHelper.closeAll(ranks, hosts);
  }
}
