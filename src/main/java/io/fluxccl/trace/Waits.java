// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * Finds the oldest call of each lane in which ranks wait, and the oldest that matches by name, with
 * the state of each rank in it.
 */
final class Waits {
  /** Shorter waits are normal in a job that makes progress. */
  static final long LONG_NS = 100_000_000;

  private record Member(int rank, Snapshot group) {}

  private Waits() {}

  /** Returns the waits of all lanes of a job, the longest first; see {@link JobDump#waits}. */
  static List<Snapshot> of(JobDump dump) {
    Map<Long, List<Member>> groups = new TreeMap<>();
    for (Snapshot rank : dump.ranks()) {
      for (Snapshot group : rank.trees("groups")) {
        groups
            .computeIfAbsent(group.number("id"), id -> new ArrayList<>())
            .add(new Member(JobDump.rankOf(rank), group));
      }
    }
    List<Snapshot> waits = new ArrayList<>();
    groups.values().forEach(members -> addWaits(dump, members, waits));
    waits.sort(Comparator.comparingLong(wait -> -wait.number("since_ns")));
    return waits;
  }

  private static void addWaits(JobDump dump, List<Member> members, List<Snapshot> waits) {
    List<Long> tags =
        members.stream()
            .flatMap(member -> member.group.trees("lanes").stream())
            .map(lane -> lane.number("tag"))
            .distinct()
            .sorted()
            .toList();
    List<Snapshot> found = new ArrayList<>();
    for (long tag : tags) {
      members.stream()
          .flatMap(member -> CallRecord.oldestInFlight(member.group, tag).stream())
          .filter(call -> call.number("first") > 0)
          .min(Comparator.comparingLong(call -> call.number("last")))
          .ifPresent(call -> found.add(of(dump, members, tag, tag - tags.get(0), call)));
      members.stream()
          .flatMap(member -> named(member.group, tag))
          .map(call -> ofName(dump, members, tag, tag - tags.get(0), call))
          .filter(wait -> !wait.integers("blamed").isEmpty())
          .max(Comparator.comparingLong(wait -> wait.number("since_ns")))
          .ifPresent(found::add);
    }
    boolean isSubGroup = members.get(0).group.number("id") != 0;
    found.forEach(wait -> waits.add(wait.with("sentence", sentence(wait, isSubGroup))));
  }

  private static Stream<Snapshot> lanes(Snapshot group, long tag) {
    return group.trees("lanes").stream().filter(lane -> lane.number("tag") == tag);
  }

  /** Returns a rank's calls that match by name and have not begun. */
  static Stream<Snapshot> named(Snapshot group, long tag) {
    return lanes(group, tag).flatMap(lane -> lane.trees("named").stream());
  }

  /** Returns the wait in a call that matches by name: ranks that don't have it are blamed. */
  private static Snapshot ofName(
      JobDump dump, List<Member> members, long tag, long lane, Snapshot call) {
    List<Integer> waiting = new ArrayList<>();
    List<Integer> behind = new ArrayList<>();
    long since = 0;
    for (Member member : members) {
      List<Snapshot> own =
          named(member.group, tag)
              .filter(each -> each.text("name").equals(call.text("name")))
              .toList();
      if (!own.isEmpty()) {
        waiting.add(member.rank);
      } else if (hasAllNamed(member.group, tag)) {
        behind.add(member.rank);
      }
      since = own.stream().mapToLong(each -> each.number("since_ns")).reduce(since, Math::max);
    }
    List<Integer> silent = silentMembers(dump, members);
    return wait(members, lane, call.text("call") + " '" + call.text("name") + "'", since)
        .with("waiting", waiting)
        .with("not_begun", behind)
        .with("silent", silent)
        .with("completed", List.of())
        .with("blamed", behind.isEmpty() ? silent : behind);
  }

  /** Returns a wait without the ranks that take part in it. */
  private static Snapshot wait(List<Member> members, long lane, String call, long since) {
    return Snapshot.EMPTY
        .with("group", members.get(0).group.text("group"))
        .with("lane", lane)
        .with("call", call)
        .with("since_ns", since)
        .with("long", since >= LONG_NS);
  }

  /** Returns the ranks of a group that have not answered. */
  private static List<Integer> silentMembers(JobDump dump, List<Member> members) {
    List<Integer> all = members.get(0).group.integers("members");
    return dump.silent().stream().filter(rank -> all.isEmpty() || all.contains(rank)).toList();
  }

  /** Returns whether a rank has sent all its calls by name, and not just the oldest. */
  private static boolean hasAllNamed(Snapshot group, long tag) {
    return lanes(group, tag)
        .allMatch(lane -> lane.trees("named").size() >= lane.number("named_all"));
  }

  private static Snapshot of(
      JobDump dump, List<Member> members, long tag, long lane, Snapshot call) {
    long number = call.number("last");
    List<Integer> waiting = new ArrayList<>();
    List<Integer> behind = new ArrayList<>();
    List<Integer> others = new ArrayList<>();
    Set<Long> waitedFor = new HashSet<>();
    Snapshot longest = call;
    long since = 0;
    for (Member member : members) {
      Snapshot own = CallRecord.oldestInFlight(member.group, tag).orElse(Snapshot.EMPTY);
      if (enqueued(member.group, tag) < number) {
        behind.add(member.rank);
      } else if (own.number("first") <= number && own.number("last") >= number) {
        waiting.add(member.rank);
        waitedFor.add(member.group.number("kernels_waited_for"));
        long waits = CallRecord.workedNs(own);
        longest = waits > since && own.number("last") == number ? own : longest;
        since = Math.max(since, waits);
      } else {
        others.add(member.rank);
      }
    }
    List<Integer> all = members.get(0).group.integers("members");
    if (all.isEmpty()) {
      all = IntStream.range(0, dump.nRanks()).boxed().toList();
    }
    List<Integer> silent = silentMembers(dump, members);
    long kernels = waitedFor.size() == 1 ? waitedFor.iterator().next() : -1;
    List<Integer> blamed = behind.isEmpty() ? silent : behind;
    if (blamed.isEmpty() && kernels >= 0 && kernels < all.size()) {
      blamed = List.of(all.get((int) kernels));
    }
    return wait(members, lane, CallRecord.label(longest), since)
        .with("waiting", waiting)
        .with("not_begun", behind)
        .with("silent", silent)
        .with("completed", others)
        .with("blamed", blamed);
  }

  /** Returns how many collectives a rank has enqueued on a lane. */
  private static long enqueued(Snapshot group, long tag) {
    return lanes(group, tag).mapToLong(lane -> lane.number("enqueued")).max().orElse(0);
  }

  /** Returns one sentence about which ranks wait for which others. */
  private static String sentence(Snapshot wait, boolean isSubGroup) {
    List<Integer> behind = wait.integers("not_begun");
    List<Integer> silent = wait.integers("silent");
    String where =
        Text.of(
            "%s of lane %d%s",
            wait.text("call"),
            wait.number("lane"),
            isSubGroup ? " of sub-group " + wait.text("group") : "");
    String waits =
        ranks(wait.integers("waiting"), "waits", "wait")
            + " for "
            + seconds(wait.number("since_ns"));
    if (!behind.isEmpty()) {
      String unanswered = silent.isEmpty() ? "" : "; " + unanswered(silent);
      return Text.of(
          "%s not begun %s, in which %s%s", ranks(behind, "has", "have"), where, waits, unanswered);
    }
    if (!silent.isEmpty()) {
      return Text.of("%s, and in %s %s", unanswered(silent), where, waits);
    }
    List<Integer> others = wait.integers("completed");
    List<Integer> blamed = wait.integers("blamed");
    return Text.of(
        "%s in %s%s; all ranks have begun it%s",
        waits,
        where,
        others.isEmpty() ? "" : ", which " + ranks(others, "completed", "completed"),
        blamed.isEmpty() ? "" : "; their kernels last waited long for rank " + blamed.get(0));
  }

  /** Returns that ranks do not answer. */
  static String unanswered(List<Integer> ranks) {
    return ranks(ranks, "does", "do") + " not answer";
  }

  /** Returns ranks and a verb: {@code rank 2 waits}, {@code ranks 0, 1 and 3 wait}. */
  private static String ranks(List<Integer> ranks, String verbOfOne, String verbOfMany) {
    int last = ranks.size() - 1;
    if (last <= 0) {
      return (last < 0 ? "no rank" : "rank " + ranks.get(0)) + " " + verbOfOne;
    }
    String all = ranks.stream().limit(last).map(String::valueOf).collect(Collectors.joining(", "));
    return "ranks " + all + " and " + ranks.get(last) + " " + verbOfMany;
  }

  /** Returns a time as a text, with two digits or more. */
  static String seconds(long nanos) {
    return nanos < 1_000_000_000 ? nanos / 1_000_000 + " ms" : Text.of("%.1f s", nanos / 1e9);
  }
}
