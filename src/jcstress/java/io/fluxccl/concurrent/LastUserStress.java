// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import java.util.concurrent.atomic.AtomicInteger;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;

/** After the owner's release, the last user leaves while another user enters or is refused. */
@JCStressTest
@State
@Outcome(id = "1", expect = Expect.ACCEPTABLE, desc = "released by the last user")
@Outcome(expect = Expect.FORBIDDEN, desc = "never released, or twice")
public class LastUserStress {
  private final AtomicInteger released = new AtomicInteger();
  private final UseCount shared =
      new UseCount() {
        @Override
        protected void lastUserLeft() {
          released.incrementAndGet();
        }
      };

  @Actor
  public void leave() {
    shared.release();
  }

  @Actor
  public void come() {
    if (shared.tryRetain()) {
      shared.release();
    }
  }

  @Arbiter
  public void look(I_Result result) {
    result.r1 = released.get();
  }
}
