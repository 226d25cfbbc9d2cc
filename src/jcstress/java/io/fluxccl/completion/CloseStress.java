// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import io.fluxccl.Aborted;
import java.util.concurrent.CompletableFuture;
import org.agrona.concurrent.UnsafeBuffer;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.ZZ_Result;

/** A future that is registered while its queue is closed ends, in either order. */
@JCStressTest
@State
@Outcome(id = "true, true", expect = Expect.ACCEPTABLE, desc = "failed by either")
@Outcome(expect = Expect.FORBIDDEN, desc = "never ended")
public class CloseStress {
  private final CompletionAgent agent = new CompletionAgent("stress", () -> 0, false);
  private final CompletionQueue queue =
      agent.createQueue(
          "s", new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]), () -> 0, () -> null);
  private CompletableFuture<Void> future;

  @Actor
  public void register() {
    future = queue.register(queue.next());
  }

  @Actor
  public void close() {
    queue.close(new Aborted(-1, "closed"));
  }

  @Arbiter
  public void look(ZZ_Result result) {
    result.r1 = future.isDone();
    result.r2 = future.isCompletedExceptionally();
  }
}
