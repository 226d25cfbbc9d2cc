// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The oldest call of a lane in which ranks wait, and the state of each rank in it. Ranks are
 * numbered as in the job.
 *
 * @param group the number of the sub-group, or 0
 * @param groupName its name
 * @param lane the number of the lane in its group, from 0
 * @param call that waits, as the rank recorded it that has waited longest
 * @param sinceNs for how long
 * @param waiting the ranks that are in the call
 * @param behind the ranks that answer and have not begun it
 * @param silent the ranks of the group that don't answer
 * @param others the ranks that have completed it
 * @param waitedFor the rank that the waiting ranks' kernels last waited long for; -1 if they differ
 */
public record LaneWait(
    long group,
    String groupName,
    int lane,
    CallRecord call,
    long sinceNs,
    List<Integer> waiting,
    List<Integer> behind,
    List<Integer> silent,
    List<Integer> others,
    int waitedFor) {
  /** Shorter waits are normal in a job that makes progress. */
  static final long LONG_NS = 100_000_000;

  private record Member(int rank, GroupReport report, long nowNs) {}

  /** Returns the waits of all lanes of a job, the longest first. */
  static List<LaneWait> of(JobDump dump) {
    Map<Long, List<Member>> groups = new TreeMap<>();
    for (RankAnswer answer : dump.ranks()) {
      answer
          .report()
          .ifPresent(
              report ->
                  report
                      .groups()
                      .forEach(
                          each ->
                              groups
                                  .computeIfAbsent(each.group(), id -> new ArrayList<>())
                                  .add(new Member(answer.rank(), each, report.nowNs()))));
    }
    List<LaneWait> waits = new ArrayList<>();
    groups.values().forEach(members -> addWaits(dump, members, waits));
    waits.sort(Comparator.comparingLong(LaneWait::sinceNs).reversed());
    return waits;
  }

  private static void addWaits(JobDump dump, List<Member> members, List<LaneWait> waits) {
    int[] tags =
        members.stream()
            .flatMap(member -> member.report.lanes().stream())
            .mapToInt(LaneReport::tag)
            .distinct()
            .sorted()
            .toArray();
    for (int tag : tags) {
      Member first = null;
      for (Member member : members) {
        CallRecord call = member.report.oldestInFlight(tag);
        if (call != null && call.first() > 0) {
          CallRecord least = first == null ? null : first.report.oldestInFlight(tag);
          first = least == null || call.last() < least.last() ? member : first;
        }
      }
      if (first != null) {
        waits.add(of(dump, members, tag, tag - tags[0], first.report.oldestInFlight(tag)));
      }
    }
  }

  private static LaneWait of(
      JobDump dump, List<Member> members, int tag, int lane, CallRecord call) {
    List<Integer> waiting = new ArrayList<>();
    List<Integer> behind = new ArrayList<>();
    List<Integer> others = new ArrayList<>();
    TreeMap<Integer, Integer> waitedFor = new TreeMap<>();
    CallRecord longest = call;
    long since = 0;
    for (Member member : members) {
      CallRecord own = member.report.oldestInFlight(tag);
      long enqueued =
          member.report.lanes().stream()
              .filter(each -> each.tag() == tag)
              .mapToLong(LaneReport::enqueued)
              .max()
              .orElse(0);
      if (enqueued < call.last()) {
        behind.add(member.rank);
      } else if (own != null && own.first() <= call.last() && own.last() >= call.last()) {
        waiting.add(member.rank);
        waitedFor.merge(member.report.waitsFor(), 1, Integer::sum);
        long waits = member.nowNs - Math.max(own.enqueuedNs(), own.begunNs());
        longest = waits > since && own.last() == call.last() ? own : longest;
        since = Math.max(since, waits);
      } else {
        others.add(member.rank);
      }
    }
    GroupReport any = members.get(0).report;
    List<Integer> all =
        any.ranks().isEmpty() ? IntStream.range(0, dump.nRanks()).boxed().toList() : any.ranks();
    List<Integer> silent =
        dump.ranks().stream()
            .filter(each -> !each.answers() && all.contains(each.rank()))
            .map(RankAnswer::rank)
            .toList();
    int one = waitedFor.size() == 1 ? waitedFor.firstKey() : -1;
    int ofJob = one >= 0 && one < all.size() ? all.get(one) : -1;
    return new LaneWait(
        any.group(), any.name(), lane, longest, since, waiting, behind, silent, others, ofJob);
  }

  /** Returns whether the wait is too long for a job that makes progress. */
  public boolean isLong() {
    return sinceNs >= LONG_NS;
  }

  /** Returns the ranks for which the others wait; empty if that is not known. */
  public List<Integer> blamed() {
    if (!behind.isEmpty()) {
      return behind;
    }
    return !silent.isEmpty() || waitedFor < 0 ? silent : List.of(waitedFor);
  }

  /** Returns the call and its lane, for example {@code all-reduce 1043 of lane 0}. */
  public String where() {
    String of = group == 0 ? "" : " of sub-group " + groupName;
    return call.label() + " of lane " + lane + of;
  }

  /** Returns one sentence about which ranks wait for which others. */
  public String sentence() {
    String wait = waiting.size() == 1 ? "waits" : "wait";
    String waits = Text.of("%s %s for %s", ranks(waiting), wait, seconds(sinceNs));
    String unanswered =
        silent.isEmpty()
            ? ""
            : Text.of("; %s %s not answer", ranks(silent), silent.size() == 1 ? "does" : "do");
    if (!behind.isEmpty()) {
      return Text.of(
          "%s %s not begun %s, in which %s%s",
          ranks(behind), behind.size() == 1 ? "has" : "have", where(), waits, unanswered);
    }
    if (!silent.isEmpty()) {
      return Text.of(
          "%s %s not answer, and in %s %s",
          ranks(silent), silent.size() == 1 ? "does" : "do", where(), waits);
    }
    String done = others.isEmpty() ? "" : ", which " + ranks(others) + " completed";
    String kernels = waitedFor < 0 ? "" : "; their kernels last waited long for rank " + waitedFor;
    return Text.of("%s in %s%s; all ranks have begun it%s", waits, where(), done, kernels);
  }

  /** Returns ranks as a text: {@code rank 2}, {@code ranks 0, 1 and 3}. */
  static String ranks(List<Integer> ranks) {
    if (ranks.size() == 1) {
      return "rank " + ranks.get(0);
    }
    String all =
        ranks.stream()
            .limit(ranks.size() - 1L)
            .map(String::valueOf)
            .collect(Collectors.joining(", "));
    return "ranks " + all + " and " + ranks.get(ranks.size() - 1);
  }

  /** Returns a time as a text, with two digits or more. */
  static String seconds(long nanos) {
    return nanos < 1_000_000_000 ? nanos / 1_000_000 + " ms" : Text.of("%.1f s", nanos / 1e9);
  }
}
