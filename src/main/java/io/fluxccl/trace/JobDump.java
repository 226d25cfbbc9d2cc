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
import java.util.stream.Stream;

/**
 * The snapshots of all ranks of a job: which ranks answer, the progress of each on each lane, and
 * which ranks wait for which others.
 *
 * @param ranks an answer of each, by rank: its {@link #answer}, or its {@link #noAnswer}
 */
public record JobDump(List<Snapshot> ranks) {
  private static final long SETTLED_NS = 1_000_000_000;

  /** The fields that JSON leaves out, because only the library needs them. */
  private static final Set<String> INTERNAL =
      Set.of("id", "members", "now_ns", "sequence", "waited_ns", "device_begun_ns_ago", "sentence");

  /** Creates the dump of answers, in any order. */
  public JobDump {
    ranks = ranks.stream().sorted(Comparator.comparingInt(JobDump::rankOf)).toList();
  }

  /**
   * Returns the answer of a rank: its snapshot, with {@code rank} and {@code clock_offset_ns}. This
   * is the rank's {@link System#nanoTime} minus that of this process, to within half of the round
   * trip.
   *
   * @param sentNs when it was asked
   * @param receivedNs when the answer arrived
   */
  public static Snapshot answer(int rank, Snapshot snapshot, long sentNs, long receivedNs) {
    long asked = sentNs + (receivedNs - sentNs) / 2;
    return snapshot.with("rank", rank).with("clock_offset_ns", snapshot.number("now_ns") - asked);
  }

  /** Returns the entry of a rank that did not answer, with the {@code problem}. */
  public static Snapshot noAnswer(int rank, String problem) {
    return Snapshot.EMPTY.with("rank", rank).with("problem", problem);
  }

  static int rankOf(Snapshot answer) {
    return (int) answer.number("rank");
  }

  static boolean answers(Snapshot answer) {
    return answer.has("clock_offset_ns");
  }

  /** Returns the job's name; may be empty. */
  public String job() {
    return ranks.stream().filter(JobDump::answers).findFirst().orElse(Snapshot.EMPTY).text("job");
  }

  /** Returns how many ranks the job has. */
  public int nRanks() {
    return ranks.size();
  }

  /**
   * Returns the calls that ranks wait in, one for each lane, and one more if calls of a lane that
   * match by name wait for ranks that do not have them; the longest wait first. Ranks are numbered
   * as in the job. A wait has these fields:
   *
   * <ul>
   *   <li>{@code group}: the name of the sub-group; {@code lane}: its number in the group, from 0
   *   <li>{@code call}: the call and its number; {@code since_ns}: the time of the longest wait
   *   <li>{@code long}: whether that is too long for a job that makes progress
   *   <li>{@code waiting}, {@code not_begun}, {@code silent}, {@code completed}: the ranks that are
   *       in the call, have not begun it, don't answer, or have completed it
   *   <li>{@code blamed}: the ranks for which the others wait; empty if that is not known
   *   <li>{@code sentence}: a description
   * </ul>
   */
  public List<Snapshot> waits() {
    return Waits.of(this);
  }

  private Stream<Snapshot> longWaits() {
    return waits().stream().filter(wait -> wait.number("since_ns") >= Waits.LONG_NS);
  }

  /** Returns the ranks that have not answered. */
  public List<Integer> silent() {
    return ranks.stream().filter(each -> !answers(each)).map(JobDump::rankOf).toList();
  }

  /**
   * Returns for how long ranks that don't answer have been silent, as the others report.
   *
   * @return by rank, in ns; only those that are known to be silent for over a second
   */
  public Map<Integer, Long> silentNs() {
    Map<Integer, Long> longest = new TreeMap<>();
    ranks.stream()
        .flatMap(each -> each.trees("silent").stream())
        .forEach(each -> longest.merge(rankOf(each), each.number("silent_ns"), Math::max));
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
            .filter(wait -> wait.number("since_ns") >= SETTLED_NS)
            .anyMatch(wait -> wait.integers("silent").containsAll(silent))
        : missed.containsAll(silent);
  }

  /** Returns why the job has failed, if a rank reports it. */
  public Optional<String> failure() {
    return ranks.stream()
        .flatMap(each -> each.trees("groups").stream())
        .map(each -> each.text("failure"))
        .filter(each -> !each.isEmpty())
        .findFirst();
  }

  /** Returns the ranks for which the others wait, most probably; empty if none is known. */
  public List<Integer> blamed() {
    return longWaits()
        .map(wait -> wait.integers("blamed"))
        .filter(each -> !each.isEmpty())
        .findFirst()
        .orElseGet(this::silent);
  }

  /** Returns in one sentence or several what is wrong, or that nothing is. */
  public String verdict() {
    String limit = Waits.seconds(Waits.LONG_NS);
    List<String> sentences = new ArrayList<>();
    failure().ifPresent(reason -> sentences.add("the job has failed: " + reason));
    List<String> waits = longWaits().map(wait -> wait.text("sentence")).toList();
    sentences.addAll(waits);
    if (waits.isEmpty() && !silent().isEmpty()) {
      sentences.add(
          Waits.unanswered(silent())
              + "; no rank that answers waits in a collective for over "
              + limit);
    }
    if (sentences.isEmpty()) {
      sentences.add("all ranks answer, and none waits in a collective for over " + limit);
    }
    return String.join("\n", sentences);
  }

  /** Returns the verdict, and tables of ranks and lanes, as text. */
  @Override
  public String toString() {
    return DumpText.of(this);
  }

  /** Returns the dump with all calls as JSON. Times are seconds. */
  public String json() {
    Map<Integer, Long> silentNs = silentNs();
    return Snapshot.EMPTY
        .with("job", job())
        .with("ranks", nRanks())
        .with("verdict", verdict())
        .with("blamed", blamed())
        .with("silent", silent())
        .with("waits", waits())
        .with("answers", ranks.stream().map(each -> tree(each, silentNs)).toList())
        .json(INTERNAL);
  }

  private static Snapshot tree(Snapshot answer, Map<Integer, Long> silentNs) {
    Snapshot tree =
        Snapshot.EMPTY
            .with("rank", rankOf(answer))
            .with("answers", answers(answer))
            .with("silent_ns", silentNs.get(rankOf(answer)));
    return answers(answer)
        ? tree.with("process", answer.number("process"))
            .with("host", answer.text("host"))
            .with("clock_offset_ns", answer.number("clock_offset_ns"))
            .with("groups", answer.trees("groups"))
        : tree.with("problem", answer.text("problem"));
  }

  /** Formats a {@link JobDump} as text. */
  private static final class DumpText {
    private static final int LAST_CALLS = 3;

    private final JobDump dump;
    private final StringBuilder out = new StringBuilder(1024);

    private DumpText(JobDump dump) {
      this.dump = dump;
    }

    static String of(JobDump dump) {
      DumpText text = new DumpText(dump);
      String name = dump.job().isEmpty() ? "" : " " + dump.job();
      int answers = dump.nRanks() - dump.silent().size();
      text.line("job%s of %d ranks, of which %d answer", name, dump.nRanks(), answers);
      text.line("%s", dump.verdict());
      dump.ranks().forEach(text::write);
      return text.out.toString().stripTrailing();
    }

    private void line(String format, Object... values) {
      out.append(Text.of(format, values).stripTrailing()).append('\n');
    }

    private void write(Snapshot answer) {
      int rank = JobDump.rankOf(answer);
      out.append('\n');
      if (JobDump.answers(answer)) {
        line(
            "rank %d answers: process %d on %s",
            rank, answer.number("process"), answer.text("host"));
        answer.trees("groups").forEach(this::writeGroup);
        return;
      }
      Long silentNs = dump.silentNs().get(rank);
      String since =
          silentNs == null ? "" : "; no heartbeat for " + Waits.seconds(silentNs) + " or more";
      line("rank %d does not answer: %s%s", rank, answer.text("problem"), since);
    }

    private void writeGroup(Snapshot group) {
      String indent = group.number("id") == 0 ? "  " : "    ";
      if (group.number("id") != 0) {
        line("  sub-group %s", group.text("group"));
      }
      if (!group.text("failure").isEmpty()) {
        line("%sfailed: %s", indent, group.text("failure"));
      }
      group.texts("setups").forEach(setup -> line("%s%s", indent, setup));
      TreeMap<Long, Long> most = mostEnqueued(group.number("id"));
      for (Snapshot lane : group.trees("lanes")) {
        long tag = lane.number("tag");
        long behind = most.get(tag) - lane.number("enqueued");
        line(
            "%slane %d: %d collectives enqueued, %d done; calls in flight: %d%s",
            indent,
            tag - most.firstKey(),
            lane.number("enqueued"),
            lane.number("done"),
            lane.number("in_flight"),
            behind == 0 ? "" : "; the leading rank has enqueued " + behind + " more");
        writeNamed(lane, indent);
        CallRecord.oldestInFlight(group, tag)
            .ifPresentOrElse(
                call ->
                    line(
                        "%s  in %s for %s",
                        indent,
                        CallRecord.describe(call),
                        Waits.seconds(CallRecord.workedNs(call))),
                () -> writeLastCalls(group, tag, indent));
      }
    }

    private void writeNamed(Snapshot lane, String indent) {
      List<Snapshot> calls = lane.trees("named");
      if (!calls.isEmpty()) {
        Snapshot oldest = calls.get(0);
        line(
            "%s  named calls that have not begun: %d; the oldest, %s '%s', waits for %s",
            indent,
            Math.max(calls.size(), lane.number("named_all")),
            oldest.text("call"),
            oldest.text("name"),
            Waits.seconds(oldest.number("since_ns")));
      }
    }

    private void writeLastCalls(Snapshot group, long tag, String indent) {
      List<Snapshot> calls =
          group.trees("calls").stream().filter(call -> call.number("lane") == tag).toList();
      for (Snapshot call : calls.subList(Math.max(0, calls.size() - LAST_CALLS), calls.size())) {
        line(
            "%s  %s: %s in %d us, %s ago",
            indent,
            CallRecord.describe(call),
            call.text("outcome"),
            call.number("time_ns") / 1000,
            Waits.seconds(call.number("enqueued_ns_ago") - call.number("time_ns")));
      }
    }

    /** Returns the most collectives that a rank has enqueued, by lane. */
    private TreeMap<Long, Long> mostEnqueued(long id) {
      TreeMap<Long, Long> most = new TreeMap<>();
      dump.ranks().stream()
          .flatMap(rank -> rank.trees("groups").stream())
          .filter(group -> group.number("id") == id)
          .flatMap(group -> group.trees("lanes").stream())
          .forEach(lane -> most.merge(lane.number("tag"), lane.number("enqueued"), Math::max));
      return most;
    }
  }
}
