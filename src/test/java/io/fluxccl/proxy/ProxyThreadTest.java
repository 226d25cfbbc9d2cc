// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.proxy.ProxyHandlerResult.CONTINUE;
import static io.fluxccl.proxy.ProxyHandlerResult.STOP;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The proxy on its own thread: start, stop, and their failures. */
@Timeout(60)
class ProxyThreadTest extends ProxyFixture {
  private static final String NAME = "proxy-under-test";

  private final CountDownLatch release = new CountDownLatch(1);

  ProxyThreadTest() {
    super(512);
  }

  @Override
  ProxyOptions.Builder options() {
    return super.options().name(NAME);
  }

  @Override
  @AfterEach
  void shouldHaveFreedEverything() {
    release.countDown();
    super.shouldHaveFreedEverything();
    assertThat(threads()).isZero();
  }

  /** Starts a proxy whose handler runs an action for each trigger. */
  private void started(ProxyOptions.Builder options, Runnable action) {
    proxy(
        (first, second, position) -> {
          action.run();
          return CONTINUE;
        },
        options);
    proxy.start();
  }

  @Test
  void shouldReportTheShareOfCyclesThatFindWork() {
    proxy((first, second, position) -> CONTINUE, options());
    assertThat(proxy.duty()).as("no thread").isZero();
    proxy.start();
    await().until(() -> proxy.duty() == 0 && proxy.duty() == 0);
    push(100);
    await().until(() -> proxy.duty() > 0);
    assertThat(proxy.duty()).isBetween(0.0, 1.0);
  }

  private static long threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals(NAME))
        .count();
  }

  @Test
  void shouldRunInitialiserAndHandlerOnItsThreadWhenStarted() {
    List<String> calls = new CopyOnWriteArrayList<>();
    proxy(
        (first, second, position) -> {
          calls.add("handle on " + Thread.currentThread().getName());
          return CONTINUE;
        },
        options().threadInit(() -> calls.add("init on " + Thread.currentThread().getName())));
    assertThat(proxy.isRunning()).isFalse();

    proxy.start();
    proxy.start();

    assertThat(proxy.isRunning()).isTrue();
    assertThat(threads()).isEqualTo(1);
    assertThat(producer.sync(producer.push(1, 2))).isTrue();
    assertThat(calls).containsExactly("init on " + NAME, "handle on " + NAME);
  }

  @Test
  void shouldLeaveNoThreadWhenStartedAndStoppedAHundredTimes() {
    AtomicInteger handled = new AtomicInteger();
    started(options(), handled::incrementAndGet);
    for (int i = 1; i <= 100; i++) {
      proxy.start();
      producer.push(i, i);
      proxy.stop();
      proxy.stop();

      assertThat(handled).hasValue(i);
      assertThat(proxy.isRunning()).isFalse();
      assertThat(threads()).isZero();
    }
    assertThat(errors).isEmpty();
  }

  @Test
  void shouldEndAndStartAgainWhenHandlerReturnsStop() {
    proxy((first, second, position) -> first == 9 ? STOP : CONTINUE, options());
    for (int i = 0; i < 20; i++) {
      proxy.start();
      long stop = producer.push(9, 0);
      long behind = producer.push(1, 0);
      assertThat(producer.sync(stop)).isTrue();
      assertThat(proxy.isRunning()).isFalse();

      // The old thread may not have ended yet.
      proxy.start();
      assertThat(producer.sync(behind)).isTrue();
    }
    assertThat(errors).isEmpty();
    producer.push(9, 0);
    await().until(() -> threads() == 0);
    assertThat(proxy.isRunning()).isFalse();
  }

  @Test
  void shouldInterruptTheHandlerWhenItBlocksForLongerThanTheStopTimeout() throws Exception {
    CountDownLatch entered = new CountDownLatch(1);
    started(
        options().stopTimeout(Duration.ofMillis(1)),
        () -> {
          entered.countDown();
          try {
            release.await();
          } catch (InterruptedException e) {
            throw new IllegalStateException(e);
          }
        });
    producer.push(1, 1);
    assertThat(entered.await(60, SECONDS)).isTrue();

    proxy.stop();

    assertThat(threads()).isZero();
    assertThat(errors).hasSize(1);
    assertThat(errors.get(0)).hasCauseInstanceOf(InterruptedException.class);
  }

  @Test
  void shouldKeepTheRingAndNameThePositionIfTheHandlerNeverReturns() throws Exception {
    CountDownLatch entered = new CountDownLatch(1);
    proxy(
        (first, second, position) -> {
          if (position == 1) {
            entered.countDown();
            while (release.getCount() > 0) {
              awaitQuietly(release);
            }
          }
          return CONTINUE;
        },
        options().stopTimeout(Duration.ofMillis(1)));
    proxy.start();
    producer.push(1, 1);
    producer.push(2, 2);
    assertThat(entered.await(60, SECONDS)).isTrue();

    assertThrows(io.fluxccl.Timeout.class, proxy::close, NAME, "position 1");
    assertThat(device.openBuffers()).isEqualTo(3);

    release.countDown();
    proxy.close();
    assertThat(device.openBuffers()).isEqualTo(1);
  }

  @Test
  void shouldFailTheStartWhenInitialiserThrows() {
    AtomicBoolean fail = new AtomicBoolean(true);
    proxy(
        (first, second, position) -> CONTINUE,
        options()
            .threadInit(
                () -> {
                  if (fail.get()) {
                    throw new NoClassDefFoundError("on purpose");
                  }
                }));

    assertThatThrownBy(proxy::start)
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("threadInit")
        .hasRootCauseInstanceOf(NoClassDefFoundError.class);
    assertThat(proxy.isRunning()).isFalse();
    assertThat(threads()).isZero();

    fail.set(false);
    proxy.start();
    assertThat(producer.sync(producer.push(1, 1))).isTrue();
    assertThat(errors).isEmpty();
  }

  @Test
  void shouldRefuseWhenStoppedFromItsOwnThread() {
    started(options(), () -> proxy.stop());

    assertThat(producer.sync(producer.push(1, 1))).isTrue();

    assertThat(errors).hasSize(1);
    assertThat(errors.get(0)).isInstanceOf(InvalidUsage.class).hasMessageContaining("STOP");
    assertThat(proxy.isRunning()).isTrue();
  }

  @Test
  void shouldContinueIfInterruptedWhileIdle() {
    AtomicReference<Thread> thread = new AtomicReference<>();
    started(options().threadInit(() -> thread.set(Thread.currentThread())), () -> {});

    for (int i = 1; i <= 3; i++) {
      int reports = i;
      await().until(() -> thread.get().getState() == Thread.State.TIMED_WAITING);
      thread.get().interrupt();

      await().until(() -> errors.size() == reports);
      assertThat(errors.get(i - 1))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("interrupted");
      long position = producer.push(i, i);
      await().until(() -> fifo.tail() > position); // sync has no timeout
      assertThat(proxy.isRunning()).isTrue();
    }
  }

  @Test
  void shouldRefuseASecondConsumerWhenRunningOnItsThread() {
    started(options(), () -> {});

    assertRefused(proxy::doWork, "own thread");
    assertRefused(proxy::onStart);
    assertThat(producer.sync(producer.push(1, 1))).isTrue();
  }

  @Test
  void shouldRefuseToStartWhenClosed() {
    started(options(), () -> {});
    proxy.close();
    proxy.close();
    proxy.stop();

    assertRefused(proxy::start, "closed");
  }

  /** The bound: an idle proxy takes less than 2 % of a core. */
  @Tag("timed")
  @Test
  void shouldCostNextToNothingWhenIdle() {
    var threads = ManagementFactory.getThreadMXBean();
    AtomicReference<Thread> thread = new AtomicReference<>();
    started(options().threadInit(() -> thread.set(Thread.currentThread())), () -> {});
    producer.sync(producer.push(1, 1));
    long id = thread.get().getId();
    // Warm up: the first idle cycles run in the interpreter.
    await().pollDelay(Duration.ofSeconds(1)).until(() -> true);

    // About 0.8% if waking a thread costs 19 us; the margin and the repetitions are for busy
    // machines.
    double least = 1;
    for (int i = 0; i < 10 && least >= 0.02; i++) {
      long cpu = threads.getThreadCpuTime(id);
      long wall = System.nanoTime();
      await().pollDelay(Duration.ofSeconds(2)).until(() -> true);
      long used = threads.getThreadCpuTime(id) - cpu;
      least = Math.min(least, (double) used / Math.max(1, System.nanoTime() - wall));
    }

    assertThat(least).isLessThan(0.02);
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await(30, SECONDS);
    } catch (InterruptedException e) {
      // Like a handler that cannot be interrupted.
    }
  }
}
