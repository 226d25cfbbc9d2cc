// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.Text;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

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
  private static final int MOST_NAME_BYTES = 1 << 10;

  /** The least bytes of a record on the wire. */
  static final int WIRE_BYTES = 4 + 8 * 9 + 3 * 4 + 1;

  /** Returns the call and its number, for example {@code all-reduce 1043}. */
  public String label() {
    if (first == 0) {
      return kind;
    }
    return first == last ? kind + " " + first : Text.of("%s %d to %d", kind, first, last);
  }

  /** Returns whether the call is in flight. */
  public boolean isInFlight() {
    return outcome == Outcome.IN_FLIGHT;
  }

  CallRecord begun(long atNs) {
    return new CallRecord(
        lane,
        sequence,
        first,
        last,
        kind,
        type,
        algorithm,
        bytes,
        enqueuedNs,
        atNs,
        endedNs,
        deviceBegunNs,
        deviceEndedNs,
        outcome);
  }

  /** Returns calls with the times at which each could begin: those of a lane run in order. */
  static List<CallRecord> withBegins(List<CallRecord> calls, boolean complete) {
    Map<Integer, CallRecord> before = new HashMap<>();
    List<CallRecord> all = new ArrayList<>(calls.size());
    for (CallRecord call : calls) {
      CallRecord previous = before.put(call.lane(), call);
      long begun = 0;
      if (previous == null) {
        begun = complete ? call.enqueuedNs() : 0;
      } else if (!previous.isInFlight()) {
        begun = Math.max(call.enqueuedNs(), previous.endedNs());
      }
      all.add(call.begun(begun));
    }
    return List.copyOf(all);
  }

  void write(WireWriter out) {
    out.int32(lane).int64(sequence).int64(first).int64(last);
    out.string(kind).string(type).string(algorithm);
    out.int64(bytes).int64(enqueuedNs).int64(begunNs).int64(endedNs);
    out.int64(deviceBegunNs).int64(deviceEndedNs).uint8(outcome.ordinal());
  }

  static CallRecord read(WireReader in) {
    int lane = in.int32("lane");
    long sequence = in.int64("sequence");
    long first = in.int64("first");
    long last = in.int64("last");
    String kind = in.string("kind", MOST_NAME_BYTES);
    String type = in.string("type", MOST_NAME_BYTES);
    String algorithm = in.string("algorithm", MOST_NAME_BYTES);
    long bytes = in.int64("bytes");
    long enqueuedNs = in.int64("enqueuedNs");
    long begunNs = in.int64("begunNs");
    long endedNs = in.int64("endedNs");
    long deviceBegunNs = in.int64("deviceBegunNs");
    long deviceEndedNs = in.int64("deviceEndedNs");
    int outcome = in.uint8("outcome");
    in.check(outcome < Outcome.values().length, "outcome", Integer.toString(outcome));
    return new CallRecord(
        lane,
        sequence,
        first,
        last,
        kind,
        type,
        algorithm,
        bytes,
        enqueuedNs,
        begunNs,
        endedNs,
        deviceBegunNs,
        deviceEndedNs,
        Outcome.values()[outcome]);
  }
}
