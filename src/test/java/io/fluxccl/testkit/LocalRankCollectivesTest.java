// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import io.fluxccl.group.StepLoop;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;

@Timeout(60)
class LocalRankCollectivesTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private static void completes(Mono<Void> run) {
    StepVerifier.create(run.subscribeOn(Schedulers.parallel())).expectComplete().verify(LONG);
  }

  @Test
  void shouldConnectInAnOperatorWithoutBlocking() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            Mono<Void> barrier = Mono.defer(() -> rank.collectives().barrier());
            completes(Mono.fromFuture(rank::connect).flatMap(opened -> opened.barrier()));
            completes(barrier); // they are connected now
            assertThat(rank.collectives()).isSameAs(rank.connect().join());
          });
    }
  }

  @Test
  void shouldRefuseToWaitInAnOperator() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      LocalRank alone = ranks.ranks().get(0);
      StepVerifier.create(Mono.fromCallable(alone::collectives).subscribeOn(Schedulers.parallel()))
          .expectErrorSatisfies(
              refusal ->
                  assertThat(refusal)
                      .isInstanceOf(InvalidUsage.class)
                      .hasMessageContainingAll("collectives() on rank 0", "connect()"))
          .verify(LONG);
      ranks.run(rank -> completes(Mono.fromFuture(rank::connect).flatMap(each -> each.barrier())));
    }
  }

  @Test
  void shouldLeadStepsOfRanksInOneJvm() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          rank -> {
            Queue<String> seen = new ConcurrentLinkedQueue<>();
            StepLoop first =
                StepLoop.of(rank, command -> Mono.fromRunnable(() -> seen.add("a" + command[0])));
            StepLoop second =
                StepLoop.of(rank, command -> Mono.fromRunnable(() -> seen.add("b" + command[0])));
            if (rank.rank() == 0) {
              completes(first.step(new byte[] {1}).then(second.step(new byte[] {2})));
              completes(Mono.fromFuture(first.shutdown()).then());
              completes(Mono.fromFuture(second.shutdown()).then());
            } else {
              completes(Mono.when(first.follow(), second.follow()));
            }
            assertThat(seen).containsExactlyInAnyOrderElementsOf(List.of("a1", "b2"));
          });
    }
  }
}
