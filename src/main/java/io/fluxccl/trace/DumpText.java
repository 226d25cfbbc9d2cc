// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import java.util.List;
import java.util.Locale;
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
    text.writeHead();
    dump.ranks().forEach(text::write);
    return text.out.toString().stripTrailing();
  }

  private void line(String format, Object... values) {
    out.append(Text.of(format, values).stripTrailing()).append('\n');
  }

  private void writeHead() {
    long answers = dump.nRanks() - dump.silent().size();
    line(
        "job%s of %d ranks, of which %d answer",
        dump.job().isEmpty() ? "" : " " + dump.job(), dump.nRanks(), answers);
    line("%s", dump.verdict());
  }

  private void write(RankAnswer answer) {
    out.append('\n');
    if (answer.report().isEmpty()) {
      Long silentNs = dump.silentNs().get(answer.rank());
      String since =
          silentNs == null ? "" : "; no heartbeat for " + LaneWait.seconds(silentNs) + " or more";
      line("rank %d does not answer: %s%s", answer.rank(), answer.problem(), since);
      return;
    }
    RankReport report = answer.report().get();
    line("rank %d answers: process %d on %s", answer.rank(), report.process(), report.host());
    report.groups().forEach(group -> write(report, group));
  }

  private void write(RankReport report, GroupReport group) {
    String indent = "  ";
    if (group.group() != 0) {
      line("  sub-group %s", group.name());
      indent = "    ";
    }
    if (!group.failure().isEmpty()) {
      line("%sfailed: %s", indent, group.failure());
    }
    for (String setup : group.setups()) {
      line("%s%s", indent, setup);
    }
    for (LaneReport lane : group.lanes()) {
      write(report, group, lane, indent);
    }
  }

  private void write(RankReport report, GroupReport group, LaneReport lane, String indent) {
    long behind = most(group.group(), lane.tag()) - lane.enqueued();
    line(
        "%slane %d: %d collectives enqueued, %d done; calls in flight: %d%s",
        indent,
        lane.tag() - leastTag(group.group()),
        lane.enqueued(),
        lane.done(),
        lane.inFlight(),
        behind == 0 ? "" : "; the leading rank has enqueued " + behind + " more");
    CallRecord oldest = group.oldestInFlight(lane.tag());
    if (oldest != null) {
      long since = report.nowNs() - Math.max(oldest.enqueuedNs(), oldest.begunNs());
      line("%s  in %s for %s", indent, describe(oldest), LaneWait.seconds(since));
      return;
    }
    List<CallRecord> calls =
        group.calls().stream().filter(call -> call.lane() == lane.tag()).toList();
    for (CallRecord call : calls.subList(Math.max(0, calls.size() - LAST_CALLS), calls.size())) {
      line(
          "%s  %s: %s in %d us, %s ago",
          indent,
          describe(call),
          call.outcome().name().toLowerCase(Locale.ROOT),
          (call.endedNs() - call.enqueuedNs()) / 1000,
          LaneWait.seconds(report.nowNs() - call.endedNs()));
    }
  }

  /** Returns a call with its size, type and algorithm. */
  static String describe(CallRecord call) {
    StringBuilder text = new StringBuilder(call.label());
    if (call.bytes() > 0) {
      text.append(" of ").append(call.bytes()).append(" bytes");
    }
    if (!call.type().isEmpty()) {
      text.append(' ').append(call.type());
    }
    if (!call.algorithm().isEmpty()) {
      text.append(" by ").append(call.algorithm());
    }
    return text.toString();
  }

  private long most(long group, int tag) {
    return lanes(group).getOrDefault(tag, 0L);
  }

  private int leastTag(long group) {
    return lanes(group).firstKey();
  }

  /** Returns the most collectives that a rank has enqueued, by lane. */
  private TreeMap<Integer, Long> lanes(long group) {
    TreeMap<Integer, Long> most = new TreeMap<>();
    for (RankAnswer answer : dump.ranks()) {
      GroupReport report = answer.of(group);
      if (report != null) {
        report.lanes().forEach(lane -> most.merge(lane.tag(), lane.enqueued(), Math::max));
      }
    }
    return most;
  }
}
