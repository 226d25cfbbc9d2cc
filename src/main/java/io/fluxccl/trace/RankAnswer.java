// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import java.util.Optional;

/**
 * The answer of one rank to a request for its report.
 *
 * @param rank by its number in the job
 * @param report empty if it has not answered
 * @param problem why there is no report; empty if there is one
 * @param offsetNs the rank's {@link System#nanoTime} minus that of the process that asked, to
 *     within half of the round trip
 */
public record RankAnswer(int rank, Optional<RankReport> report, String problem, long offsetNs) {
  /**
   * Returns the answer of a rank.
   *
   * @param sentNs when it was asked
   * @param receivedNs when the answer arrived
   */
  public static RankAnswer of(int rank, RankReport report, long sentNs, long receivedNs) {
    long offset = report.nowNs() - (sentNs + (receivedNs - sentNs) / 2);
    return new RankAnswer(rank, Optional.of(report), "", offset);
  }

  /** Returns the entry of a rank that did not answer. */
  public static RankAnswer none(int rank, String problem) {
    return new RankAnswer(rank, Optional.empty(), problem, 0);
  }

  /** Returns whether the rank has answered. */
  public boolean answers() {
    return report.isPresent();
  }

  /** Returns the rank's report on a group, or null. */
  GroupReport of(long group) {
    return report.stream()
        .flatMap(each -> each.groups().stream())
        .filter(each -> each.group() == group)
        .findFirst()
        .orElse(null);
  }
}
