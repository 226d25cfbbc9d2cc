// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * One call of a rank, as its flight recorder knows it. Times are those of {@link System#nanoTime}
 * on that rank.
 *
 * @param lane the tag of its lane
 * @param sequence its number among the calls of the recorder, from 1
 * @param first the number of its first collective of all ranks on the lane, from 1; 0 if it has
 *     none
 * @param last the number of the last one, or 0
 * @param kind for example {@code all-reduce}, {@code pipeline}, {@code captured pipeline}
 * @param type of the elements; empty for several collectives
 * @param algorithm that the call took, in a pipeline the last one; empty if none was chosen
 * @param bytes of all its collectives: of each the larger of input and output; 0 if unknown
 * @param enqueuedNs when it was enqueued
 * @param begunNs when the calls before it on its lane were over, so that it could begin; 0 if they
 *     are not, or that is not known
 * @param endedNs when it was over; 0 while it is in flight
 * @param deviceBegunNs when the device began it, by the device's own clock; 0 if that is not known
 * @param deviceEndedNs when the device was done with it, or 0
 * @param outcome its state
 */
public record CallRecord(
    int lane,
    long sequence,
    long first,
    long last,
    String kind,
    String type,
    String algorithm,
    long bytes,
    long enqueuedNs,
    long begunNs,
    long endedNs,
    long deviceBegunNs,
    long deviceEndedNs,
    Outcome outcome) {
  private static final int FEW_CALLS = 10;
  private static final int FEW_SHOWN = 4;

  /** Returns the call and its number, for example {@code all-reduce 1043}. */
  public String label() {
    return label(kind, first, last);
  }

  private static String label(String kind, long first, long last) {
    if (first == 0) {
      return kind;
    }
    return first == last ? kind + " " + first : Text.of("%s %d to %d", kind, first, last);
  }

  /** Returns whether the call is in flight. */
  public boolean isInFlight() {
    return outcome == Outcome.IN_FLIGHT;
  }

  /**
   * Returns the call as a part of a snapshot: with its times until now, and without those that are
   * not known.
   *
   * @param nowNs the time of the snapshot
   */
  public Snapshot tree(long nowNs) {
    return Snapshot.EMPTY
        .with("lane", lane)
        .with("sequence", sequence)
        .with("first", first)
        .with("last", last)
        .with("kind", kind)
        .with("type", type)
        .with("algorithm", algorithm)
        .with("bytes", bytes)
        .with("outcome", outcome.name().toLowerCase(Locale.ROOT))
        .with("enqueued_ns_ago", nowNs - enqueuedNs)
        .with("waited_ns", begunNs == 0 ? null : Math.max(0, begunNs - enqueuedNs))
        .with("time_ns", endedNs == 0 ? null : endedNs - enqueuedNs)
        .with("device_begun_ns_ago", deviceEndedNs == 0 ? null : nowNs - deviceBegunNs)
        .with("device_time_ns", deviceEndedNs == 0 ? null : deviceEndedNs - deviceBegunNs);
  }

  // ---- calls of snapshots ----

  static String label(Snapshot call) {
    return label(call.text("kind"), call.number("first"), call.number("last"));
  }

  /** Returns a call with its size, type and algorithm. */
  static String describe(Snapshot call) {
    String bytes = call.number("bytes") > 0 ? " of " + call.number("bytes") + " bytes" : "";
    String type = call.text("type").isEmpty() ? "" : " " + call.text("type");
    String algorithm = call.text("algorithm").isEmpty() ? "" : " by " + call.text("algorithm");
    return label(call) + bytes + type + algorithm;
  }

  static boolean isInFlight(Snapshot call) {
    return call.text("outcome").equals("in_flight");
  }

  /** Returns for how long a call was or is at work: since the call before it on its lane ended. */
  static long workedNs(Snapshot call) {
    String until = isInFlight(call) ? "enqueued_ns_ago" : "time_ns";
    return call.number(until) - call.number("waited_ns");
  }

  /** Returns the oldest call of a lane that is in flight. */
  static Optional<Snapshot> oldestInFlight(Snapshot group, long lane) {
    return group.trees("calls").stream()
        .filter(call -> call.number("lane") == lane && isInFlight(call))
        .findFirst();
  }

  /** Returns the calls of a group that are in flight in words, the oldest first. */
  public static String callsInFlight(Snapshot group) {
    return describe(group.trees("calls").stream().filter(CallRecord::isInFlight).toList());
  }

  static String describe(List<Snapshot> calls) {
    String shown =
        calls.stream().limit(FEW_SHOWN).map(CallRecord::describe).collect(Collectors.joining(", "));
    int more = calls.size() - FEW_SHOWN;
    return more > 0 ? shown + " and " + more + " more" : shown;
  }

  /** Returns a group with only its last few calls, and those in flight. */
  public static Snapshot withFewCalls(Snapshot group) {
    List<Snapshot> calls = group.trees("calls");
    long newest = calls.isEmpty() ? 0 : calls.get(calls.size() - 1).number("sequence");
    return group.with(
        "calls",
        calls.stream()
            .filter(call -> isInFlight(call) || call.number("sequence") > newest - FEW_CALLS)
            .toList());
  }
}
