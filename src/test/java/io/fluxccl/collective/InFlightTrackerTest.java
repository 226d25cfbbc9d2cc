// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Deadline;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.AbortFlag;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import reactor.core.scheduler.Scheduler;
import reactor.test.scheduler.VirtualTimeScheduler;

/** The time limit of runs, in virtual time. */
class InFlightTrackerTest {
  private static final Duration LIMIT = Duration.ofSeconds(30);

  private final VirtualTimeScheduler time = VirtualTimeScheduler.create();
  private final List<Run> late = new ArrayList<>();
  private int timers;
  private Scheduler timer = countingTimers();
  private final InFlightTracker runs =
      new InFlightTracker(late::add, () -> time.now(TimeUnit.NANOSECONDS), () -> timer);

  private Scheduler countingTimers() {
    Scheduler timer = mock(Scheduler.class);
    when(timer.now(any())).thenAnswer(asked -> System.currentTimeMillis());
    when(timer.schedule(any(), anyLong(), any()))
        .thenAnswer(
            asked -> {
              timers++;
              return time.schedule(
                  asked.getArgument(0), asked.getArgument(1, Long.class), asked.getArgument(2));
            });
    return timer;
  }

  @AfterEach
  void close() {
    runs.close();
    time.dispose();
  }

  /** Enqueues a run without a lane and without a subscriber. */
  private Run enqueued() {
    return enqueued(LIMIT);
  }

  private Run enqueued(Duration limit) {
    Run run =
        new Run(null, List.of()) {
          @Override
          long limitNs() {
            return limit.toNanos();
          }

          @Override
          void completed() {}

          @Override
          void failed(Throwable reason) {}

          @Override
          String description() {
            return "run";
          }
        };
    runs.add(run);
    return run;
  }

  private void end(Run run) {
    run.complete();
    runs.trim();
  }

  private void pass(Duration duration) {
    time.advanceTimeBy(duration);
  }

  @ParameterizedTest
  @CsvSource({"-1,1", "2,2"})
  void shouldNameTheLinkThatIsDownWhenARunIsLate(int silent, int blamed) {
    Bootstrap bootstrap = mock(Bootstrap.class);
    when(bootstrap.unresponsiveRank())
        .thenReturn(silent < 0 ? OptionalInt.empty() : OptionalInt.of(silent));
    AbortFlag abortFlag = mock(AbortFlag.class);
    when(abortFlag.waitingFor()).thenReturn(3);
    Communicator communicator = mock(Communicator.class);
    when(communicator.bootstrap()).thenReturn(bootstrap);
    when(communicator.abortFlag()).thenReturn(abortFlag);
    when(communicator.interruption())
        .thenReturn(Optional.of(new TransportFailure(1, "the link to rank 1 is down: reset")));
    Timeout late = LateRuns.timeoutOf(communicator, "all-reduce(4)", LIMIT, "");
    assertThat(late)
        .hasMessageStartingWith("all-reduce(4) on rank 0: not done within ")
        .hasMessageEndingWith("the link to rank 1 is down: reset");
    assertThat(late.rank()).isEqualTo(blamed);
  }

  @Test
  void shouldApplyTheFullLimitToEachRun() {
    Run first = enqueued();
    pass(Duration.ofSeconds(20));
    Run second = enqueued();
    pass(Duration.ofSeconds(5));
    end(first);
    pass(Duration.ofSeconds(24));
    assertThat(late).isEmpty();
    pass(Duration.ofSeconds(1));
    assertThat(late).containsExactly(second);
  }

  @Test
  void shouldTakeNoTimerForEachRun() {
    for (int i = 0; i < 10_000; i++) {
      end(enqueued());
      pass(Duration.ofMillis(1));
    }
    assertThat(timers).isLessThan(3);
    assertThat(runs.runs).isEmpty();
  }

  @Test
  void shouldFindTheNewestRunThatIsNotOver() {
    Run first = enqueued();
    enqueued().complete();
    assertThat(runs.newest()).isSameAs(first);
  }

  @Test
  void shouldExpireALaterRunFirstIfItsLimitIsShorter() {
    enqueued();
    pass(Duration.ofSeconds(5));
    Run shorter = enqueued(Duration.ofSeconds(2));
    Run longer = enqueued(Duration.ofSeconds(3));
    pass(Duration.ofSeconds(2).minusNanos(1));
    assertThat(late).isEmpty();
    pass(Duration.ofNanos(1));
    assertThat(late).containsExactly(shorter);
    end(shorter);
    end(longer);
  }

  @Test
  void shouldExpireALongRunAtItsLimitAfterAShorterRunCompleted() {
    Run first = enqueued();
    Run shorter = enqueued(Duration.ofSeconds(2));
    Run longer = enqueued(LIMIT.multipliedBy(3));
    pass(Duration.ofSeconds(1));
    end(shorter);
    pass(LIMIT.minusSeconds(1).minusNanos(1));
    assertThat(late).isEmpty();
    end(first);
    pass(LIMIT.multipliedBy(2));
    assertThat(late).isEmpty();
    pass(Duration.ofNanos(1));
    assertThat(late).containsExactly(longer);
  }

  @Test
  void shouldSetNoTimerForARunWithoutALimit() {
    Run endless = enqueued(Deadline.NO_LIMIT);
    assertThat(timers).isZero();
    pass(Duration.ofDays(36_500));
    assertThat(late).isEmpty();
    Run run = enqueued();
    pass(LIMIT.minusNanos(1));
    end(run);
    pass(LIMIT);
    int before = timers;
    pass(LIMIT.multipliedBy(100));
    assertThat(timers).isEqualTo(before);
    assertThat(late).isEmpty();
    end(endless);
    assertThat(runs.runs).isEmpty();
  }

  @Test
  void shouldFollowVirtualTimeWhileItIsInstalled() {
    Run before = enqueued();
    Scheduler usual = timer;
    VirtualTimeScheduler virtual = VirtualTimeScheduler.create();
    timer = virtual;
    Run meanwhile = enqueued(Duration.ofHours(2));
    Run kept = enqueued(Duration.ofHours(1));
    virtual.advanceTimeBy(Duration.ofMinutes(59));
    end(kept);
    virtual.advanceTimeBy(Duration.ofMinutes(61).minusNanos(1));
    assertThat(late).isEmpty();
    virtual.advanceTimeBy(Duration.ofNanos(1));
    assertThat(late).containsExactly(meanwhile);
    end(meanwhile);
    timer = usual;
    pass(LIMIT.minusNanos(1));
    assertThat(late).containsExactly(meanwhile);
    pass(Duration.ofNanos(1));
    assertThat(late).containsExactly(meanwhile, before);
  }

  @Test
  void shouldUseTheNextTimerAfterOneWasShutDown() {
    end(enqueued());
    timer = countingTimers();
    int before = timers;
    Run run = enqueued();
    assertThat(timers).isEqualTo(before + 1);
    pass(LIMIT.minusNanos(1));
    assertThat(late).isEmpty();
    pass(Duration.ofNanos(1));
    assertThat(late).containsExactly(run);
  }

  @Test
  void shouldForgetRunsThatEndOutOfOrder() {
    Run first = enqueued();
    Run second = enqueued();
    Run third = enqueued();
    end(second);
    assertThat(runs.runs.size()).isEqualTo(3);
    end(first);
    assertThat(runs.runs.size()).isOne();
    end(third);
    assertThat(runs.runs).isEmpty();
    pass(LIMIT.multipliedBy(2));
    assertThat(late).isEmpty();
  }

  @Test
  void shouldReportNoLateRunsAfterClose() {
    enqueued();
    runs.close();
    pass(LIMIT.multipliedBy(2));
    assertThat(late).isEmpty();
  }
}
