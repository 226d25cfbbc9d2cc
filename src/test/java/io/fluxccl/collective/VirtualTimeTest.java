// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.PipelineKernels.ints;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.CommunicatorOptions;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;
import reactor.test.scheduler.VirtualTimeScheduler;

/** Timeouts follow Reactor's virtual time while it is installed. */
@org.junit.jupiter.api.Timeout(120)
@Tag("jdk")
class VirtualTimeTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration LIMIT = Duration.ofHours(1);

  private final LocalRanks ranks = LocalRanks.of(2);
  private final List<LocalRank> both = ranks.ranks();

  @AfterEach
  void close() {
    VirtualTimeScheduler.reset();
    ranks.close();
  }

  /** Creates the collectives in real time. */
  private List<Collectives> open(CollectivesOptions options) {
    List<CompletableFuture<Collectives>> opening =
        both.stream().map(rank -> Collectives.create(rank.communicator(), options)).toList();
    return opening.stream().map(CompletableFuture::join).toList();
  }

  private Mono<Void> sum(List<Collectives> all, int rank) {
    return all.get(rank).allReduce(ints(both.get(rank).device(), 1), INT32, SUM);
  }

  @Test
  void shouldTimeOutARunInVirtualTime() throws Exception {
    List<Collectives> all = open(CollectivesOptions.DEFAULT.withTimeout(LIMIT));
    StepVerifier.withVirtualTime(() -> sum(all, 0))
        .expectSubscription()
        .expectNoEvent(LIMIT.minusMillis(1))
        .thenAwait(Duration.ofMillis(1))
        .expectErrorSatisfies(
            e ->
                assertThat(e)
                    .isInstanceOf(Timeout.class)
                    .hasMessageContaining("not done within 3600000 ms"))
        .verify(LONG);
    failsJob(both.get(1), Timeout.class);
  }

  @Test
  void shouldNameTheRankThatHasNotSubscribedToANameInVirtualTime() {
    List<NamedCollectives> named =
        open(CollectivesOptions.DEFAULT.withTimeout(LIMIT)).stream()
            .map(Collectives::named)
            .toList()
            .stream()
            .map(CompletableFuture::join)
            .toList();
    StepVerifier.withVirtualTime(() -> named.get(0).barrier("x"))
        .expectSubscription()
        // Virtual time is added to real time, which also passes.
        .expectNoEvent(LIMIT.minusMinutes(5))
        .thenAwait(Duration.ofMinutes(5))
        .expectErrorMatches(
            e ->
                e instanceof Timeout late
                    && late.rank() == 1
                    && late.getMessage().contains("ranks [1] have not subscribed"))
        .verify(LONG);
    assertThat(both.get(0).communicator().failure()).isNull();
    named.forEach(NamedCollectives::close);
  }

  @Test
  void shouldEndOperationsOfTheBootstrapInVirtualTime() {
    StepVerifier.withVirtualTime(
            () -> Mono.fromFuture(both.get(0).bootstrap().recv(1, 7, Deadline.after(LIMIT))))
        .expectSubscription()
        .expectNoEvent(LIMIT.minusMillis(1))
        .thenAwait(Duration.ofMillis(1))
        .expectErrorMatches(e -> e instanceof Timeout late && late.rank() == 1)
        .verify(LONG);
    assertThat(both.get(0).bootstrap().failure()).isNotDone();
  }

  @Test
  void shouldTimeOutASetUpInVirtualTimeIfThePeerDoesNotTakePart() {
    VirtualTimeScheduler time = VirtualTimeScheduler.getOrSet();
    both.get(0).communicator().connectOnSetup(1, 0, EndpointConfig.of(Transport.SHM));
    CompletableFuture<Void> setup = both.get(0).communicator().setup();
    time.advanceTimeBy(CommunicatorOptions.DEFAULT.setupTimeout());
    assertThat(assertFails(setup, Timeout.class).rank()).isEqualTo(1);
  }

  @Test
  void shouldNotPassBeforeItsTimeWhenItsTimerRunsTooEarly() throws Exception {
    VirtualTimeScheduler time = VirtualTimeScheduler.set(new EarlyOnce());
    AtomicInteger passed = new AtomicInteger();
    ScheduledExecutorService executor = Executors.newSingleThreadScheduledExecutor();
    try {
      Deadline.after(LIMIT).whenPassed(executor, passed::incrementAndGet);
      Deadline.after(LIMIT).whenPassed(executor, passed::incrementAndGet).dispose();
      time.advanceTimeBy(LIMIT.minusMillis(1));
      executor.submit(() -> {}).get(60, TimeUnit.SECONDS);
      assertThat(passed).hasValue(0);
      time.advanceTimeBy(Duration.ofMillis(1));
      executor.submit(() -> {}).get(60, TimeUnit.SECONDS);
      assertThat(passed).hasValue(1);
    } finally {
      executor.shutdownNow();
    }
  }

  /** A scheduler that runs its first task too early, as Reactor's may while time is advanced. */
  private static final class EarlyOnce extends VirtualTimeScheduler {
    private boolean early = true;

    EarlyOnce() {
      super(true);
    }

    @Override
    public Disposable schedule(Runnable task, long delay, TimeUnit unit) {
      long sooner = early ? delay / 2 : delay;
      early = false;
      return super.schedule(task, sooner, unit);
    }
  }

  @Test
  void shouldTimeOutInRealTimeIfVirtualTimeDoesNotAdvance() {
    VirtualTimeScheduler.getOrSet();
    Deadline soon = Deadline.after(Duration.ofMillis(200));
    fails(both.get(0).bootstrap().recv(1, 7, soon), Timeout.class);
    Deadline takenBack = Deadline.after(Duration.ofMillis(200));
    VirtualTimeScheduler.reset();
    fails(both.get(0).bootstrap().recv(1, 7, takenBack), Timeout.class);
  }

  @Test
  void shouldFailAJobIfARankIsSilentForTooLongInVirtualTime() {
    Bootstrap other = both.get(0).bootstrap();
    VirtualTimeScheduler time = VirtualTimeScheduler.getOrSet();
    both.get(1).stopAnswering(LIMIT);
    StepVerifier.create(other.silence())
        .expectNext(OptionalInt.empty())
        .then(() -> time.advanceTimeBy(Duration.ofSeconds(1)))
        .expectNext(OptionalInt.of(1))
        .then(both.get(1)::answerAgain)
        .expectNext(OptionalInt.empty())
        .then(() -> both.get(1).stopAnswering(LIMIT))
        .then(() -> time.advanceTimeBy(LIMIT))
        .expectNext(OptionalInt.of(1))
        .thenCancel()
        .verify(LONG);
    assertThat(other.failure()).isNotDone();
    time.advanceTimeBy(Duration.ofSeconds(1));
    assertThat(other.failure())
        .succeedsWithin(LONG)
        .isInstanceOfSatisfying(Timeout.class, e -> assertThat(e.rank()).isEqualTo(1));
  }

  @Test
  void shouldAttributeALateRunToTheSilentRank() {
    List<Collectives> all = open(CollectivesOptions.DEFAULT.withTimeout(LIMIT));
    VirtualTimeScheduler time = VirtualTimeScheduler.getOrSet();
    both.get(1).stopAnswering(Duration.ZERO);
    CompletableFuture<Void> run = sum(all, 0).toFuture();
    time.advanceTimeBy(Duration.ofSeconds(1));
    await().atMost(LONG).until(() -> both.get(0).bootstrap().silentRanks().equals(List.of(1)));
    time.advanceTimeBy(LIMIT);
    fails(run, Timeout.class, "rank 1 answers no heartbeat");
  }

  @Test
  void shouldNotEndAnIdleLaneNorARunThatIsDone() {
    List<Collectives> all = open(CollectivesOptions.DEFAULT.withTimeout(LIMIT));
    VirtualTimeScheduler time = VirtualTimeScheduler.getOrSet();
    for (int i = 0; i < 3; i++) {
      CompletableFuture<Void> other = sum(all, 1).toFuture();
      assertThat(sum(all, 0).toFuture()).succeedsWithin(LONG);
      assertThat(other).succeedsWithin(LONG);
      time.advanceTimeBy(LIMIT.multipliedBy(1000));
    }
    both.forEach(rank -> assertThat(rank.communicator().failure()).isNull());
  }

  @Test
  void shouldReportAFailureIfVirtualTimeIsInstalledMeanwhile() {
    var thread =
        both.get(1).communicator().failed().thenApply(reason -> Thread.currentThread().getName());
    VirtualTimeScheduler.getOrSet();
    both.get(0).communicator().abort(new Aborted(0, "enough"));
    assertThat(thread).succeedsWithin(LONG).asString().startsWith("fluxccl-blocking-");
  }

  @Test
  void shouldApplyRealTimeoutsToRunsStartedInRealTime() {
    List<Collectives> all =
        open(CollectivesOptions.DEFAULT.withTimeout(LIMIT).withSetupTimeout(LONG));
    Mono<Void> limited = all.get(0).pipeline().barrier().run(Duration.ofMillis(500));
    VirtualTimeScheduler.getOrSet();
    VirtualTimeScheduler.reset();
    CompletableFuture<Void> before = limited.toFuture();
    VirtualTimeScheduler.getOrSet();
    await().atMost(LONG).until(before::isDone);
    fails(before, Timeout.class, "not done within 500 ms");
  }
}
