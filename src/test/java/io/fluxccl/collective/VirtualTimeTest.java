// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.PipelineKernels.ints;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.Timeout;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;
import reactor.test.scheduler.VirtualTimeScheduler;

/** Time limits follow Reactor's virtual time while it is installed. */
@org.junit.jupiter.api.Timeout(120)
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

  /** Opens them in real time. */
  private List<Collectives> open(CollectivesOptions options) {
    List<CompletableFuture<Collectives>> opening =
        both.stream().map(rank -> Collectives.create(rank.communicator(), options)).toList();
    return opening.stream().map(CompletableFuture::join).toList();
  }

  private Mono<Void> sum(List<Collectives> all, int rank) {
    return all.get(rank).allReduce(ints(both.get(rank).device(), 1), INT32, SUM);
  }

  @Test
  void shouldEndARunThatIsLateInVirtualTime() throws Exception {
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
    assertThat(both.get(1).communicator().failed().get(60, TimeUnit.SECONDS))
        .isInstanceOf(Timeout.class);
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
  void shouldTellOfAFailureWhileVirtualTimeComesAndGoes() {
    var thread =
        both.get(1).communicator().failed().thenApply(reason -> Thread.currentThread().getName());
    VirtualTimeScheduler.getOrSet();
    both.get(0).communicator().abort(new Aborted(0, "enough"));
    assertThat(thread).succeedsWithin(LONG).asString().startsWith("fluxccl-blocking-");
  }

  @Test
  void shouldKeepRealLimitsOfRunsFromBeforeAndAfter() {
    List<Collectives> all =
        open(CollectivesOptions.DEFAULT.withTimeout(LIMIT).withSetupTimeout(LONG));
    Mono<Void> limited = all.get(0).pipeline().barrier().run(Duration.ofMillis(500));
    VirtualTimeScheduler.getOrSet();
    VirtualTimeScheduler.reset();
    CompletableFuture<Void> before = limited.toFuture();
    VirtualTimeScheduler.getOrSet();
    await().atMost(LONG).until(before::isDone);
    assertThat(before)
        .failsWithin(LONG)
        .withThrowableThat()
        .withMessageContaining("not done within 500 ms");
  }
}
