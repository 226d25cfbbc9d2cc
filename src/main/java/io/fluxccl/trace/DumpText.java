// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import java.util.List;
import java.util.TreeMap;

/** Formats a {@link JobDump} as text. */
final class DumpText {
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
          "rank %d answers: process %d on %s", rank, answer.number("process"), answer.text("host"));
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
      CallRecord.oldestInFlight(group, tag)
          .ifPresentOrElse(
              call ->
                  line(
                      "%s  in %s for %s",
                      indent, CallRecord.describe(call), Waits.seconds(CallRecord.workedNs(call))),
              () -> writeLastCalls(group, tag, indent));
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
