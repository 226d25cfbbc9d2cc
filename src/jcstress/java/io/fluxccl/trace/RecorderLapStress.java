// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/**
 * A ring of two entries, and two threads that record two calls each: a thread may still write an
 * entry when the other one needs it again. A call is recorded whole or not at all.
 */
@JCStressTest
@State
@org.openjdk.jcstress.annotations.Outcome(
    id = "0, 0",
    expect = Expect.ACCEPTABLE,
    desc = "every call whole, meanwhile and at the end")
@org.openjdk.jcstress.annotations.Outcome(expect = Expect.FORBIDDEN, desc = "a call of two")
public class RecorderLapStress {
  private final FlightRecorder recorder = new FlightRecorder(0, () -> -1, 2, false);

  private void record(long value) {
    long sequence = recorder.enqueued((int) value, (int) value, 0, 0, value, value, value);
    recorder.ended(sequence, Outcome.DONE, value, value);
  }

  @Actor
  public void one() {
    record(1);
    record(2);
  }

  @Actor
  public void other(JJ_Result result) {
    record(3);
    record(4);
    result.r1 = RecorderStress.torn(recorder);
  }

  @Arbiter
  public void end(JJ_Result result) {
    result.r2 = RecorderStress.torn(recorder);
  }
}
