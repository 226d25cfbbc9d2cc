// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

/**
 * The reports of all ranks of a job: which ranks answer, the progress of each on each lane, and
 * which ranks wait for which others.
 *
 * @param job the job's name; may be empty
 * @param nRanks how many ranks it has
 * @param ranks an answer for each, by rank
 */
public record JobDump(String job, int nRanks, List<RankAnswer> ranks) {
  private static final long SETTLED_NS = 1_000_000_000;

  /** Returns the dump of answers, in any order. */
  public static JobDump of(int nRanks, List<RankAnswer> answers) {
    String name =
        answers.stream()
            .flatMap(each -> each.report().stream())
            .map(RankReport::job)
            .findFirst()
            .orElse("");
    return new JobDump(
        name, nRanks, answers.stream().sorted(Comparator.comparingInt(RankAnswer::rank)).toList());
  }

  /** Returns the calls that ranks wait in, one for each lane, the longest wait first. */
  public List<LaneWait> waits() {
    return LaneWait.of(this);
  }

  /** Returns the ranks that have not answered. */
  public List<Integer> silent() {
    return ranks.stream().filter(each -> !each.answers()).map(RankAnswer::rank).toList();
  }

  /**
   * Returns for how long ranks that don't answer have been silent, as the others report.
   *
   * @return by rank, in ns; only those that are known to be silent for over a second
   */
  public Map<Integer, Long> silentNs() {
    Map<Integer, Long> longest = new TreeMap<>();
    for (RankAnswer answer : ranks) {
      answer
          .report()
          .ifPresent(
              report ->
                  report
                      .silentNs()
                      .forEach((rank, since) -> longest.merge(rank, since, Math::max)));
    }
    return longest;
  }

  /**
   * Returns whether the answers show that all other ranks are stopped. If heartbeats are missed,
   * those of all these ranks must be missed. Otherwise, the ranks that answer must have waited in a
   * collective with them for over a second.
   */
  public boolean isSettled() {
    List<Integer> silent = silent();
    Set<Integer> missed = silentNs().keySet();
    return missed.isEmpty()
        ? waits().stream()
            .anyMatch(wait -> wait.sinceNs() >= SETTLED_NS && wait.silent().containsAll(silent))
        : missed.containsAll(silent);
  }

  /** Returns why the job has failed, if a rank reports it. */
  public Optional<String> failure() {
    return ranks.stream()
        .flatMap(each -> each.report().stream())
        .flatMap(each -> each.groups().stream())
        .map(GroupReport::failure)
        .filter(each -> !each.isEmpty())
        .findFirst();
  }

  /** Returns the ranks for which the others wait, most probably; empty if none is known. */
  public List<Integer> blamed() {
    return waits().stream()
        .filter(LaneWait::isLong)
        .map(LaneWait::blamed)
        .filter(each -> !each.isEmpty())
        .findFirst()
        .orElseGet(this::silent);
  }

  /** Returns in one sentence or several what is wrong, or that nothing is. */
  public String verdict() {
    List<String> sentences = new ArrayList<>();
    failure().ifPresent(reason -> sentences.add("the job has failed: " + reason));
    List<LaneWait> longWaits = waits().stream().filter(LaneWait::isLong).toList();
    longWaits.forEach(wait -> sentences.add(wait.sentence()));
    List<Integer> silent = silent();
    if (longWaits.isEmpty() && !silent.isEmpty()) {
      sentences.add(
          Text.of(
              "%s %s not answer; no rank that answers waits in a collective for over %s",
              LaneWait.ranks(silent),
              silent.size() == 1 ? "does" : "do",
              LaneWait.seconds(LaneWait.LONG_NS)));
    }
    if (sentences.isEmpty()) {
      sentences.add(
          "all ranks answer, and none waits in a collective for over "
              + LaneWait.seconds(LaneWait.LONG_NS));
    }
    return String.join("\n", sentences);
  }

  /** Returns the verdict, and tables of ranks and lanes, as text. */
  @Override
  public String toString() {
    return DumpText.of(this);
  }
}
