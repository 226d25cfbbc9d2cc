// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/** The commit bit is never seen before the payload: a poll finds nothing, or all of it. */
@JCStressTest
@State
@Outcome(id = "0, 5", expect = Expect.ACCEPTABLE, desc = "polled before the push")
@Outcome(id = "5, 0", expect = Expect.ACCEPTABLE, desc = "polled after the push")
@Outcome(expect = Expect.FORBIDDEN, desc = "torn, lost or handled twice")
public class CommitStress extends StressFifo {
  public CommitStress() {
    super(2);
  }

  @Actor
  public void producer() {
    push(5);
  }

  @Actor
  public void consumer(JJ_Result result) {
    result.r1 = take();
  }

  @Arbiter
  public void rest(JJ_Result result) {
    result.r2 = take();
    free();
  }
}
