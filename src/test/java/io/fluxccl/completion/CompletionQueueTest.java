// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.testing.AllocatedBytes;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The agent without its thread: the test calls it. */
@Tag("jdk")
class CompletionQueueTest {
  private static final DeviceFailure LOST = new DeviceFailure(700, "LOST", "lost");
  private static final Aborted CLOSED = new Aborted(-1, "closed");

  private final UnsafeBuffer line = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
  private final AtomicInteger looks = new AtomicInteger();
  private long now;
  private DeviceFailure health;
  private final CompletionAgent agent = new CompletionAgent("test", () -> now, false);
  private final CompletionQueue queue =
      agent.createQueue(
          "s",
          line,
          () -> 0,
          () -> {
            looks.incrementAndGet();
            return health;
          });

  private void store(long sequence) {
    line.putLongRelease(0, sequence);
  }

  private void passIntervals(int count) {
    for (int i = 0; i < count; i++) {
      now += TimeUnit.MILLISECONDS.toNanos(100);
      agent.doWork();
    }
  }

  @Test
  void shouldCompleteOnlyFuturesThatTheStreamHasReached() {
    CompletableFuture<Void> first = queue.register(queue.next());
    CompletableFuture<Void> second = queue.register(queue.next());
    CompletableFuture<Void> third = queue.register(queue.next());
    assertThat(agent.doWork()).isZero();
    store(2);
    assertThat(first).isNotDone();
    assertThat(agent.doWork()).isEqualTo(2);
    assertThat(first).isCompletedWithValue(null);
    assertThat(second).isCompletedWithValue(null);
    assertThat(third).isNotDone();
    store(3);
    agent.doWork();
    assertThat(third).isCompletedWithValue(null);
    assertThat(queue.issued()).isEqualTo(3);
    assertThat(queue.reached()).isEqualTo(3);
  }

  @Test
  void shouldUseTheLaterOfLineAndMilestones() {
    AtomicLong milestone = new AtomicLong();
    AtomicInteger asked = new AtomicInteger();
    UnsafeBuffer ownLine = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
    CompletionQueue own =
        agent.createQueue(
            "m",
            ownLine,
            () -> {
              asked.incrementAndGet();
              return milestone.get();
            },
            () -> health);
    List<CompletableFuture<Void>> futures = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      futures.add(own.register(own.next()));
    }
    milestone.set(2);
    assertThat(own.reached()).isZero(); // only the agent asks
    assertThat(agent.doWork()).isEqualTo(2);
    assertThat(own.reached()).isEqualTo(2);
    ownLine.putLongRelease(0, 1); // a late store of a lower number has no effect
    assertThat(agent.doWork()).isZero();
    assertThat(own.reached()).isEqualTo(2);
    ownLine.putLongRelease(0, 3);
    assertThat(agent.doWork()).isEqualTo(1);
    assertThat(own.reached()).isEqualTo(3);
    assertThat(futures.get(3)).isNotDone();
    milestone.set(4);
    assertThat(agent.doWork()).isEqualTo(1);
    assertThat(futures.get(3)).isCompletedWithValue(null);
    int before = asked.get();
    agent.doWork();
    assertThat(asked).hasValue(before); // no future is pending
  }

  @Test
  void shouldCompleteAFutureIfItsSequenceWasReachedBeforeRegistration() {
    long sequence = queue.next();
    store(sequence);
    agent.doWork();
    CompletableFuture<Void> future = queue.register(sequence);
    agent.doWork();
    assertThat(future).isCompletedWithValue(null);
  }

  @Test
  void shouldServeEveryStreamOfTheDevice() {
    UnsafeBuffer otherLine = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
    CompletionQueue other = agent.createQueue("t", otherLine, () -> 0, () -> null);
    CompletableFuture<Void> here = queue.register(queue.next());
    CompletableFuture<Void> there = other.register(other.next());
    otherLine.putLongRelease(0, 1);
    agent.doWork();
    assertThat(here).isNotDone();
    assertThat(there).isCompletedWithValue(null);
    other.remove();
    CompletableFuture<Void> never = other.register(other.next());
    otherLine.putLongRelease(0, 2);
    agent.doWork();
    assertThat(never).isNotDone();
  }

  @Test
  void shouldRunActionsInOrderEvenIfTheyThrow() {
    List<String> order = new ArrayList<>();
    queue.register(queue.next()).thenRun(() -> order.add("future"));
    queue.afterwards(queue.issued(), () -> order.add("action"));
    queue.afterwards(
        queue.issued(),
        () -> {
          throw new IllegalStateException("thrown by the test");
        });
    queue
        .register(queue.next())
        .thenRun(
            () -> {
              order.add("last");
              throw new IllegalStateException("thrown by the test");
            });
    store(2);
    assertThat(agent.doWork()).isEqualTo(4);
    assertThat(order).containsExactly("future", "action", "last");
  }

  @Test
  void shouldFailFuturesAtOnceWhenClosedButKeepActionsWaiting() {
    CompletableFuture<Void> future = queue.register(queue.next());
    AtomicInteger runs = new AtomicInteger();
    queue.afterwards(queue.issued(), runs::incrementAndGet);
    queue.close(CLOSED);
    assertThat(future).isCompletedExceptionally();
    assertThat(assertFails(queue.register(queue.issued()), Aborted.class)).isSameAs(CLOSED);
    agent.doWork();
    assertThat(runs).hasValue(0);
    store(1);
    agent.doWork();
    assertThat(runs).hasValue(1);
  }

  @Test
  void shouldFailPendingFuturesIfTheStreamIsLost() {
    CompletableFuture<Void> reached = queue.register(queue.next());
    CompletableFuture<Void> lost = queue.register(queue.next());
    AtomicInteger runs = new AtomicInteger();
    queue.afterwards(queue.issued(), runs::incrementAndGet);
    health = LOST;
    passIntervals(1);
    assertThat(reached).isNotDone();
    store(1);
    passIntervals(2);
    assertThat(reached).isCompletedWithValue(null);
    assertThat(assertFails(lost, DeviceFailure.class)).isSameAs(LOST);
    assertThat(runs).hasValue(1);
    CompletableFuture<Void> later = queue.register(queue.next());
    queue.afterwards(queue.issued(), runs::incrementAndGet);
    agent.doWork();
    assertThat(assertFails(later, DeviceFailure.class)).isSameAs(LOST);
    assertThat(runs).hasValue(2);
  }

  @Test
  void shouldCompleteFuturesAfterAQueryHasThrown() {
    AtomicBoolean broken = new AtomicBoolean(true);
    AtomicLong milestone = new AtomicLong(1);
    CompletionQueue own =
        agent.createQueue(
            "broken",
            new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]),
            () -> {
              throwIf(broken.get());
              return milestone.get();
            },
            () -> {
              throwIf(broken.get());
              return null;
            });
    UnsafeBuffer otherLine = new UnsafeBuffer(new byte[CompletionQueue.LINE_LENGTH]);
    CompletionQueue other = agent.createQueue("behind it", otherLine, () -> 0, () -> null);
    CompletableFuture<Void> future = own.register(own.next());
    CompletableFuture<Void> there = other.register(other.next());
    otherLine.putLongRelease(0, 1);
    agent.doWork();
    assertThat(there).isCompletedWithValue(null);
    passIntervals(CompletionQueue.MAX_FAILED_CHECKS / 2);
    broken.set(false);
    milestone.set(0);
    passIntervals(2); // the query works again, which resets the count of failures
    broken.set(true);
    passIntervals(CompletionQueue.MAX_FAILED_CHECKS - 1);
    assertThat(future).isNotDone();
    broken.set(false);
    milestone.set(1);
    agent.doWork();
    assertThat(future).isCompletedWithValue(null);
  }

  @Test
  void shouldFailFuturesButRunNoActionsIfEveryQueryThrows() {
    CompletionQueue own =
        agent.createQueue(
            "broken",
            line,
            () -> {
              throw new IllegalStateException("thrown by the test");
            },
            () -> null);
    CompletableFuture<Void> future = own.register(own.next());
    AtomicInteger runs = new AtomicInteger();
    own.afterwards(own.issued(), runs::incrementAndGet);
    passIntervals(CompletionQueue.MAX_FAILED_CHECKS + 2);
    assertFails(future, DeviceFailure.class, "thrown by the test");
    assertThat(runs).hasValue(0);
    store(1);
    CompletableFuture<Void> next = own.register(own.issued());
    agent.doWork();
    assertThat(runs).hasValue(1);
    assertThat(next).isCompletedWithValue(null);
  }

  private static void throwIf(boolean broken) {
    if (broken) {
      throw new OutOfMemoryError("thrown by the test");
    }
  }

  @Test
  void shouldQueryHealthOnlyIfACompletionIsPendingForAnInterval() {
    passIntervals(5);
    assertThat(looks).hasValue(0);
    for (int i = 0; i < 10; i++) {
      queue.register(queue.next());
      passIntervals(1);
      store(queue.issued());
      agent.doWork();
    }
    assertThat(looks).hasValue(0);
    queue.register(queue.next());
    passIntervals(4);
    assertThat(looks).hasValue(3);
    for (int i = 0; i < 1000; i++) {
      agent.doWork(); // the clock stands still
    }
    assertThat(looks).hasValue(3);
  }

  @Test
  void shouldAllocateNothingInAPassHoweverManyWait() {
    List<CompletableFuture<Void>> waiting = new ArrayList<>();
    for (int i = 0; i < 10_000; i++) {
      waiting.add(queue.register(queue.next()));
    }
    agent.doWork(); // takes all of them over
    long allocated =
        AllocatedBytes.least(
            1000,
            () -> {
              for (int i = 0; i < 40_000; i++) {
                now += 10_000_000;
                agent.doWork();
              }
            });
    assertThat(allocated).as("bytes of 40000 passes").isLessThan(1000);
    assertThat(waiting).noneMatch(CompletableFuture::isDone);
    assertThat(looks.get()).isGreaterThan(3000);
  }
}
