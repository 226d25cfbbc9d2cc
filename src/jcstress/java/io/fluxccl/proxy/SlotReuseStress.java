// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJJJ_Result;

/**
 * A full ring of one slot: the producer writes the next lap only after the tail has passed the
 * slot, so the consumer never sees one lap in the other.
 */
@JCStressTest
@State
@Outcome(id = "1, 2, 3, 0", expect = Expect.ACCEPTABLE, desc = "each seen in its time")
@Outcome(id = "1, 2, 0, 3", expect = Expect.ACCEPTABLE, desc = "third pushed after the last poll")
@Outcome(
    id = "1, 0, 2, 3",
    expect = Expect.ACCEPTABLE,
    desc = "second pushed after the second poll")
@Outcome(expect = Expect.FORBIDDEN, desc = "torn, lost, or overwritten before it was read")
public class SlotReuseStress extends StressFifo {
  public SlotReuseStress() {
    super(1);
    push(1);
  }

  @Actor
  public void producer() {
    push(2);
    push(3);
  }

  @Actor
  public void consumer(JJJJ_Result result) {
    result.r1 = takeAndPublish();
    result.r2 = takeAndPublish();
    // The producer is waiting for room until the second was taken.
    long value = takeAndPublish();
    while (result.r2 == 0 && value == 0) {
      Thread.yield();
      value = takeAndPublish();
    }
    result.r3 = value;
  }

  @Arbiter
  public void rest(JJJJ_Result result) {
    result.r4 = take();
    free();
  }

  private long takeAndPublish() {
    long value = take();
    fifo.publishTail();
    return value;
  }
}
