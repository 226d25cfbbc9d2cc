// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import java.util.concurrent.CompletableFuture;
import org.agrona.concurrent.UnsafeBuffer;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/** Writes of a stream before its number are visible when the future is done. */
@JCStressTest
@State
@Outcome(id = "0, 7", expect = Expect.ACCEPTABLE, desc = "polled before the store")
@Outcome(id = "7, 7", expect = Expect.ACCEPTABLE, desc = "polled after the store")
@Outcome(expect = Expect.FORBIDDEN, desc = "done without its data, or never")
public class ReachStress {
  private final UnsafeBuffer line = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
  private final CompletionAgent agent = new CompletionAgent("stress", () -> 0, false);
  private final CompletionQueue queue = agent.createQueue("s", line, () -> 0, () -> null);
  private final CompletableFuture<Void> future = queue.register(queue.next());
  private int data;

  @Actor
  public void stream() {
    data = 7;
    line.putLongRelease(0, 1); // pairs with the acquire in CompletionQueue.reached
  }

  @Actor
  public void agent(II_Result result) {
    agent.doWork();
    result.r1 = future.isDone() ? data : 0;
  }

  @Arbiter
  public void rest(II_Result result) {
    agent.doWork();
    result.r2 = future.isDone() ? data : 0;
  }
}
