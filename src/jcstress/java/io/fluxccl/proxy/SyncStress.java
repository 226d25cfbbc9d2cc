// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/** After sync the caller sees the handler's writes; the handler sees writes before the push. */
@JCStressTest
@State
@Outcome(id = "7, 8", expect = Expect.ACCEPTABLE, desc = "both see the other's work")
@Outcome(expect = Expect.FORBIDDEN, desc = "tail or commit overtook plain stores before it")
public class SyncStress extends StressFifo {
  private long before;
  private long done;

  public SyncStress() {
    super(2);
  }

  @Actor
  public void producer(JJ_Result result) {
    before = 7;
    producer.sync(push(1));
    result.r2 = done;
  }

  @Actor
  public void consumer(JJ_Result result) {
    while (!fifo.poll()) {
      Thread.onSpinWait();
    }
    result.r1 = before;
    done = 8;
    fifo.pop();
    fifo.publishTail();
  }

  @Arbiter
  public void rest() {
    free();
  }
}
