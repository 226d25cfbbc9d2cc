// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class AgentThreadFailureTest {
  private final FaultyAgent agent = new FaultyAgent();

  private static final class FaultyAgent extends AgentThread {
    volatile Error error;
    volatile Error firstError;

    FaultyAgent() {
      super("faulty", new IdleBackoff(0, 0, 1_000, 1_000));
    }

    @Override
    protected void begin() {
      throwIf(firstError);
    }

    private static void throwIf(Error thrown) {
      if (thrown != null) {
        throw thrown;
      }
    }

    @Override
    public int doWork() {
      int work = runTasks();
      throwIf(error);
      return work;
    }
  }

  @AfterEach
  void end() {
    agent.execute(() -> agent.end(() -> {}));
  }

  private void assertServes() throws Exception {
    CompletableFuture<Boolean> served = new CompletableFuture<>();
    agent.execute(() -> served.complete(agent.isCurrentThread()));
    assertThat(served.get(10, TimeUnit.SECONDS)).as("on its thread").isTrue();
  }

  @Test
  void shouldServeOthersWhenATaskThrowsAnError() throws Exception {
    agent.start();
    agent.execute(
        () -> {
          throw new InternalError("of a test");
        });
    assertServes();
    assertServes();
  }

  @Test
  void shouldContinueIfACycleThrowsAnError() throws Exception {
    agent.start();
    agent.error = new InternalError("of a test");
    assertServes();
    assertServes();
    agent.error = null;
    assertServes();
  }

  @Test
  void shouldContinueIfBeginThrowsAnError() throws Exception {
    agent.firstError = new InternalError("of a test");
    agent.start();
    assertServes();
  }

  @Test
  void shouldRunItsLastTaskWhateverCyclesThrow() throws Exception {
    agent.error = new InternalError("of a test");
    agent.start();
    CompletableFuture<Void> last = new CompletableFuture<>();
    agent.execute(() -> agent.end(() -> last.complete(null)));
    last.get(10, TimeUnit.SECONDS);
    await().until(agent::isTerminated);
  }
}
