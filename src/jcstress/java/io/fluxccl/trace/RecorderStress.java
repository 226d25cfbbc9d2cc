// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/**
 * A ring of two entries: while its first call ends late, two more are recorded, of which the second
 * takes the place of the first. A reader sees each call whole or not at all, and the late end
 * changes no other call.
 */
@JCStressTest
@State
@org.openjdk.jcstress.annotations.Outcome(
    id = "0, 0",
    expect = Expect.ACCEPTABLE,
    desc = "every call whole, the last two in flight")
@org.openjdk.jcstress.annotations.Outcome(
    expect = Expect.FORBIDDEN,
    desc = "a call of two, or one that another's end has ended")
public class RecorderStress {
  private final FlightRecorder recorder = new FlightRecorder(0, () -> -1, 2, false);
  private final long first = record(1);

  private long record(long value) {
    return recorder.enqueued((int) value, (int) value, 0, 0, value, value, value);
  }

  /** Returns how many calls are made of two, where all numbers of a call are the same. */
  static long torn(FlightRecorder recorder) {
    return recorder.calls().stream()
        .filter(
            call ->
                call.lane() != call.first()
                    || call.last() != call.first()
                    || call.bytes() != call.first()
                    || !call.isInFlight() && call.deviceEndedNs() != call.first())
        .count();
  }

  private long torn() {
    return torn(recorder)
        + recorder.calls().stream().filter(call -> call.sequence() != call.first()).count();
  }

  @Actor
  public void writer() {
    record(2);
    record(3);
  }

  @Actor
  public void reader(JJ_Result result) {
    recorder.ended(first, Outcome.DONE, 1, 1);
    result.r1 = torn();
  }

  @Arbiter
  public void end(JJ_Result result) {
    long inFlight =
        recorder.calls().stream()
            .filter(call -> call.isInFlight() && call.endedNs() == 0 && call.first() >= 2)
            .count();
    result.r2 = torn() + 2 - inFlight;
  }
}
