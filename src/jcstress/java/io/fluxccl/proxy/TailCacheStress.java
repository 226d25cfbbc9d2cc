// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJJ_Result;

/**
 * Two producers wait for room in a full ring of two, while a consumer takes what is there: the one
 * that trusts the other's tail cache must not overwrite a slot that is being read. Needs three
 * cores; jcstress leaves it out where there are fewer.
 */
@JCStressTest
@State
@Outcome(id = "1, 2, 34", expect = Expect.ACCEPTABLE, desc = "in order")
@Outcome(id = "1, 2, 43", expect = Expect.ACCEPTABLE, desc = "in order")
@Outcome(expect = Expect.FORBIDDEN, desc = "torn, lost, or overwritten before it was read")
public class TailCacheStress extends StressFifo {
  public TailCacheStress() {
    super(2);
    push(1);
    push(2);
  }

  @Actor
  public void producer() {
    push(3);
  }

  @Actor
  public void otherProducer() {
    push(4);
  }

  @Actor
  public void consumer(JJJ_Result result) {
    result.r1 = take();
    fifo.publishTail();
    result.r2 = take();
    fifo.publishTail();
  }

  @Arbiter
  public void rest(JJJ_Result result) {
    long third = take();
    result.r3 = 10 * third + take();
    free();
  }
}
