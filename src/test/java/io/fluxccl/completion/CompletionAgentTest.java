// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.concurrent.SpinPolicy;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.UnsafeBuffer;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.scheduler.NonBlocking;

/** The agent with its thread. */
@Timeout(60)
@Tag("jdk")
class CompletionAgentTest {
  private static final int RACES = 30_000;

  private final CompletionAgent agent = new CompletionAgent("agent-test", () -> {});
  private final UnsafeBuffer line = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
  private final CompletionQueue queue = agent.createQueue("s", line, () -> 0, () -> null);

  private static List<Thread> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals("fluxccl-completion-agent-test"))
        .toList();
  }

  @AfterEach
  void shouldEndItsThreadIfClosedAndItsQueuesAreRemoved() {
    agent.close();
    queue.remove();
    agent.close();
    Awaitility.await().until(() -> threads().isEmpty());
  }

  @Test
  void shouldStartItsThreadWithTheFirstWaiter() {
    assertThat(threads()).isEmpty();
    CompletableFuture<Void> future = queue.register(queue.next());
    assertThat(threads()).hasSize(1);
    assertThat(threads().get(0).isDaemon()).isTrue();
    assertThat(threads().get(0)).as("where block() is refused").isInstanceOf(NonBlocking.class);
    line.putLongRelease(0, 1);
    assertThat(future).succeedsWithin(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldParkWithoutWaitersAndWakeForNewOnes() {
    for (int i = 1; i <= 20; i++) {
      CompletableFuture<Void> future = queue.register(queue.next());
      line.putLongRelease(0, i);
      assertThat(future).succeedsWithin(60, TimeUnit.SECONDS);
      Awaitility.await().until(() -> threads().get(0).getState() == Thread.State.WAITING);
    }
    threads().get(0).interrupt();
    CompletableFuture<Void> future = queue.register(queue.next());
    line.putLongRelease(0, 21);
    assertThat(future).succeedsWithin(60, TimeUnit.SECONDS);
    Awaitility.await().until(() -> threads().get(0).getState() == Thread.State.WAITING);
  }

  @Test
  void shouldServeItsQueuesAfterCloseUntilTheyAreRemoved() {
    CompletableFuture<Void> future = queue.register(queue.next());
    agent.close();
    line.putLongRelease(0, 1);
    assertThat(future).succeedsWithin(60, TimeUnit.SECONDS);
    CompletableFuture<Void> removed = new CompletableFuture<>();
    queue.afterwards(
        1,
        () -> {
          queue.remove();
          removed.complete(null);
        });
    assertThat(removed).succeedsWithin(60, TimeUnit.SECONDS);
    Awaitility.await().until(() -> threads().isEmpty());
  }

  /** A stream that completes on a thread of its own what has been issued. */
  private final class Racer {
    final UnsafeBuffer ownLine = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
    final CompletionQueue own = agent.createQueue("race", ownLine, () -> 0, () -> null);
    final Thread thread = new Thread(this::completeAll);
    long completed; // only the agent's thread increments it

    private void completeAll() {
      while (ownLine.getLongAcquire(0) < RACES) {
        ownLine.putLongRelease(0, own.issued());
        LockSupport.parkNanos(1);
      }
    }

    CompletableFuture<Void> next() {
      long sequence = own.next();
      return own.register(sequence)
          .thenRun(
              () -> {
                assertThat(ownLine.getLongAcquire(0)).isGreaterThanOrEqualTo(sequence);
                assertThat(++completed).isEqualTo(sequence);
              });
    }
  }

  @Test
  void shouldCompleteAllFuturesIfStreamsAndWaitersRace() throws Exception {
    List<Racer> racers = List.of(new Racer(), new Racer(), new Racer());
    racers.forEach(racer -> racer.thread.start());
    for (int i = 1; i <= RACES; i++) {
      CompletableFuture<?>[] last =
          racers.stream().map(Racer::next).toArray(CompletableFuture<?>[]::new);
      if (i % 1000 == 0) {
        CompletableFuture.allOf(last).get(60, TimeUnit.SECONDS);
      }
    }
    for (Racer racer : racers) {
      racer.thread.join();
      racer.own.remove();
      assertThat(racer.completed).isEqualTo(RACES);
    }
  }

  @Test
  void shouldSpinAboutWhenTheWaitBeforeEnded() {
    AtomicLong now = new AtomicLong();
    CompletionAgent still = new CompletionAgent("still", now::get, false);
    UnsafeBuffer ownLine = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
    CompletionQueue own = still.createQueue("still", ownLine, () -> 0, () -> null);
    own.register(own.next());
    now.set(4_000_000);
    ownLine.putLongRelease(0, 1);
    assertThat(still.doWork()).isPositive();
    own.register(own.next());
    long nap = 100_000;
    Awaitility.await().until(() -> !SpinPolicy.isCrowded()); // threads of other tests end
    assertThat(still.nextNapNanos(nap, 5_000_000)).isEqualTo(nap);
    assertThat(still.nextNapNanos(nap, 7_700_000)).as("until it spins").isEqualTo(50_000);
    assertThat(still.nextNapNanos(nap, 7_800_000)).isZero();
    assertThat(still.nextNapNanos(nap, 8_200_000)).isZero();
    assertThat(still.nextNapNanos(nap, 8_300_000)).isEqualTo(nap);
    ownLine.putLongRelease(0, 2);
    assertThat(still.doWork()).isPositive();
    own.remove();
  }
}
