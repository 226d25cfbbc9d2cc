// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.L_Result;

/**
 * Two producers, one of which polls in between: nothing is lost, torn or handled twice, and what
 * one producer pushed stays in its order. On two threads, so that two cores are enough to run it.
 */
@JCStressTest
@State
@Outcome(id = "1234", expect = Expect.ACCEPTABLE, desc = "in order")
@Outcome(id = "1324", expect = Expect.ACCEPTABLE, desc = "interleaved")
@Outcome(id = "1342", expect = Expect.ACCEPTABLE, desc = "interleaved")
@Outcome(id = "3124", expect = Expect.ACCEPTABLE, desc = "interleaved")
@Outcome(id = "3142", expect = Expect.ACCEPTABLE, desc = "interleaved")
@Outcome(id = "3412", expect = Expect.ACCEPTABLE, desc = "in order")
@Outcome(expect = Expect.FORBIDDEN, desc = "torn, lost, handled twice, or one producer reordered")
public class ProducersStress extends StressFifo {
  private long taken;

  public ProducersStress() {
    super(4);
  }

  @Actor
  public void producer() {
    push(1);
    push(2);
  }

  @Actor
  public void producerAndConsumer() {
    push(3);
    append(take());
    push(4);
    append(take());
    append(take());
  }

  @Arbiter
  public void rest(L_Result result) {
    for (int i = 0; i < 5; i++) {
      append(take());
    }
    free();
    result.r1 = taken;
  }

  private void append(long value) {
    if (value != 0) {
      taken = 10 * taken + value;
    }
  }
}
