// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * The state of one communicator of a rank: that of the job, or that of a sub-group.
 *
 * @param group the number of the sub-group, the same on all its ranks; 0 for the job
 * @param name of the job or the sub-group; may be empty
 * @param ranks the job's numbers of the ranks of a sub-group; empty for the job
 * @param failure why it has failed; empty while it works
 * @param waitsFor the rank, by its number in the group, for which kernels last began to wait long;
 *     -1 for none
 * @param setups the set-ups in flight and the connections that don't work, a line each
 * @param lanes the lanes that are open, by tag
 * @param calls the last calls, the oldest first
 */
public record GroupReport(
    long group,
    String name,
    List<Integer> ranks,
    String failure,
    int waitsFor,
    List<String> setups,
    List<LaneReport> lanes,
    List<CallRecord> calls) {
  private static final int MOST_TEXT_BYTES = 1 << 16;
  private static final int FEW_CALLS = 10;
  private static final int FEW_SHOWN = 4;

  void write(WireWriter out, boolean all) {
    out.int64(group).string(name);
    out.int32(ranks.size());
    ranks.forEach(out::int32);
    out.string(failure).int32(waitsFor);
    out.int32(setups.size());
    setups.forEach(out::string);
    out.int32(lanes.size());
    lanes.forEach(lane -> lane.write(out));
    List<CallRecord> sent = all ? calls : fewCalls();
    out.int32(sent.size());
    sent.forEach(call -> call.write(out));
  }

  private List<CallRecord> fewCalls() {
    long newest = calls.isEmpty() ? 0 : calls.get(calls.size() - 1).sequence();
    return calls.stream()
        .filter(call -> call.isInFlight() || call.sequence() > newest - FEW_CALLS)
        .toList();
  }

  static GroupReport read(WireReader in) {
    return new GroupReport(
        in.int64("group"),
        in.string("name", MOST_TEXT_BYTES),
        list(in, Integer.BYTES, each -> each.int32("rank")),
        in.string("failure", MOST_TEXT_BYTES),
        in.int32("waitsFor"),
        list(in, Integer.BYTES, each -> each.string("setup", MOST_TEXT_BYTES)),
        list(in, LaneReport.WIRE_BYTES, LaneReport::read),
        list(in, CallRecord.WIRE_BYTES, CallRecord::read));
  }

  /** Reads a list whose count is bounded by what has arrived. */
  static <E> List<E> list(WireReader in, int elementBytes, Function<WireReader, E> reader) {
    int count = in.int32("count", 0, in.remaining() / elementBytes);
    List<E> elements = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      elements.add(reader.apply(in));
    }
    return List.copyOf(elements);
  }

  /** Returns the calls in flight in words, the oldest first; empty if there is none. */
  public String callsInFlight() {
    List<CallRecord> open = calls.stream().filter(CallRecord::isInFlight).toList();
    String shown =
        open.stream().limit(FEW_SHOWN).map(DumpText::describe).collect(Collectors.joining(", "));
    int more = open.size() - FEW_SHOWN;
    return more > 0 ? shown + " and " + more + " more" : shown;
  }

  /** Returns the oldest call of a lane that is in flight, or null. */
  CallRecord oldestInFlight(int lane) {
    return calls.stream()
        .filter(call -> call.lane() == lane && call.isInFlight())
        .findFirst()
        .orElse(null);
  }
}
