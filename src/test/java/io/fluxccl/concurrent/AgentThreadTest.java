// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

@Tag("jdk")
class AgentThreadTest {
  /** A sleep of 1000 s: the agent continues before the test times out only if it is woken. */
  private static final int NAP_US = 1_000_000_000;

  private final AtomicInteger cycles = new AtomicInteger();
  private volatile Throwable failing;
  private volatile Error firstError;

  private final AgentThread agent =
      new AgentThread("fluxccl-test-agent", new IdleBackoff(10, 20, NAP_US, NAP_US)) {
        @Override
        protected void begin() {
          throwIf(firstError);
        }

        @Override
        public int doWork() {
          cycles.incrementAndGet();
          int work = runTasks();
          throwIf(failing);
          return work;
        }
      };

  private static void throwIf(Throwable thrown) {
    if (thrown instanceof Error error) {
      throw error;
    }
    if (thrown != null) {
      throw (RuntimeException) thrown;
    }
  }

  @AfterEach
  void end() {
    agent.execute(() -> agent.end(() -> {}));
  }

  private void assertServes() {
    CompletableFuture<Boolean> served = new CompletableFuture<>();
    agent.execute(() -> served.complete(agent.isCurrentThread()));
    assertThat(served.orTimeout(60, TimeUnit.SECONDS).join()).as("on its thread").isTrue();
  }

  @Test
  void shouldRunTasksOnItsThreadAndEndAfterThem() throws InterruptedException {
    CountDownLatch done = new CountDownLatch(3);
    agent.start();
    agent.execute(() -> countIfOnThread(done));
    agent.execute(() -> countIfOnThread(done));
    agent.end(() -> countIfOnThread(done));
    assertThat(done.await(60, TimeUnit.SECONDS)).isTrue();
    await().until(agent::isTerminated);

    CountDownLatch late = new CountDownLatch(1);
    agent.execute(late::countDown);
    assertThat(late.getCount()).isZero();
  }

  @Test
  void shouldWakeASleepingAgentIfATaskIsSubmitted() {
    agent.start();
    for (int i = 0; i < 5; i++) {
      int before = cycles.get();
      agent.execute(() -> {});
      await().until(() -> cycles.get() > before);
    }
    agent.end(() -> {});
    await().until(agent::isTerminated);
  }

  static List<Throwable> failures() {
    return List.of(new IllegalStateException("of a test"), new InternalError("of a test"));
  }

  @ParameterizedTest
  @MethodSource("failures")
  void shouldContinueIfACycleThrows(Throwable failure) {
    failing = failure;
    agent.start();
    assertServes();
    assertServes();
    failing = null;
    assertServes();
  }

  @Test
  void shouldServeOthersWhenATaskThrowsAnError() {
    agent.start();
    agent.execute(
        () -> {
          throw new InternalError("of a test");
        });
    assertServes();
    assertServes();
  }

  @Test
  void shouldContinueIfBeginThrowsAnError() {
    firstError = new InternalError("of a test");
    agent.start();
    assertServes();
  }

  @Test
  void shouldRunItsLastTaskWhateverCyclesThrow() {
    failing = new InternalError("of a test");
    agent.start();
    CompletableFuture<Void> last = new CompletableFuture<>();
    agent.execute(() -> agent.end(() -> last.complete(null)));
    last.orTimeout(60, TimeUnit.SECONDS).join();
    await().until(agent::isTerminated);
  }

  private void countIfOnThread(CountDownLatch done) {
    if (agent.isCurrentThread()) {
      done.countDown();
    }
  }
}
