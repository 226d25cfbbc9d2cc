// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("jdk")
class AgentThreadTest {
  /** A sleep of 1000 s: the agent continues before the test times out only if it is woken. */
  private static final int NAP_US = 1_000_000_000;

  private final AtomicInteger looks = new AtomicInteger();
  private volatile boolean failing;

  private final AgentThread agent =
      new AgentThread("fluxccl-test-agent", new IdleBackoff(10, 20, NAP_US, NAP_US)) {
        @Override
        public int doWork() {
          looks.incrementAndGet();
          if (failing) {
            throw new IllegalStateException("a look that fails, on purpose");
          }
          return runTasks();
        }
      };

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
      int before = looks.get();
      agent.execute(() -> {});
      await().until(() -> looks.get() > before);
    }
    agent.end(() -> {});
    await().until(agent::isTerminated);
  }

  @Test
  void shouldContinueIfDoWorkThrows() {
    failing = true;
    agent.start();
    await().until(() -> looks.get() > 3);
    failing = false;
    agent.end(() -> {});
    await().until(agent::isTerminated);
  }

  private void countIfOnThread(CountDownLatch done) {
    if (agent.isCurrentThread()) {
      done.countDown();
    }
  }
}
