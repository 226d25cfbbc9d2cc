// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Timeout;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;
import reactor.util.retry.Retry;

/** Operators of Reactor around collectives that match by name. Two ranks. */
@OnRanks(seconds = 120)
class NamedReactiveTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(50);
  private static final int NAMES = 20;

  /** Returns names, in the other direction on rank 1. */
  private static List<String> names(LocalRank rank) {
    List<String> names =
        IntStream.range(0, NAMES).mapToObj(i -> "name " + i).collect(Collectors.toList());
    if (rank.rank() == 1) {
      Collections.reverse(names);
    }
    return names;
  }

  private static Mono<Long> sum(NamedCollectives named, String name) {
    return named.of(name).allReduce(1, SUM);
  }

  private static <T> void verify(Flux<T> flux, List<T> expected) {
    ParkingStepVerifier.create(flux.collectList(), LONG)
        .expectNext(expected)
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldMatchInFlatMap(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      Flux<Long> sums = Flux.fromIterable(names(rank)).flatMap(name -> sum(named, name));
      verify(sums, Collections.nCopies(NAMES, 2L));
    }
  }

  @Test
  void shouldKeepTheOrderOfConcatMap(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      Flux<String> all =
          Flux.range(0, NAMES).concatMap(i -> sum(named, "name " + i).map(sum -> i + ": " + sum));
      verify(all, IntStream.range(0, NAMES).mapToObj(i -> i + ": 2").toList());
    }
  }

  @Test
  void shouldRunBothSourcesOfMerge(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      List<String> names = names(rank);
      Flux<Long> merged =
          Flux.merge(
              Flux.fromIterable(names.subList(0, NAMES / 2)).flatMap(each -> sum(named, each)),
              Flux.fromIterable(names.subList(NAMES / 2, NAMES)).flatMap(each -> sum(named, each)));
      verify(merged, Collections.nCopies(NAMES, 2L));
    }
  }

  @Test
  void shouldMatchTheSubscriptionOfARetry(LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withTimeout(Duration.ofSeconds(2)).withSetupTimeout(LONG);
    try (Collectives collectives = lane(rank, options);
        NamedCollectives named = collectives.named().join()) {
      Mono<Long> late = rank.rank() == 0 ? Mono.empty() : Mono.delay(Duration.ofSeconds(3));
      Mono<Long> sum =
          late.then(sum(named, "x").retryWhen(Retry.max(20).filter(Timeout.class::isInstance)));
      ParkingStepVerifier.create(sum, LONG).expectNext(2L).expectComplete().verify(LONG);
    }
  }

  @Test
  void shouldEndTheWaitOfTimeoutAndNotTheOperation(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join();
        FloatView x = rank.device().allocateFloats(1)) {
      x.put(0, 1);
      if (rank.rank() == 0) {
        StepVerifier.create(named.allReduce("x", x, SUM).timeout(SHORT))
            .expectError(TimeoutException.class)
            .verify(LONG);
      }
      rank.awaitAll();
      if (rank.rank() == 1) {
        named.allReduce("x", x, SUM).block(LONG);
      }
      named.barrier("after").block(LONG);
      assertThat(x.get(0)).isEqualTo(2);
    }
  }

  @Test
  void shouldSignalArraysOnTheSchedulerOfTheOptions(LocalRank rank) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withScheduler(Schedulers.parallel());
    try (Collectives collectives = lane(rank, options);
        NamedCollectives named = collectives.named().join()) {
      for (int size : new int[] {1, 100_000}) {
        for (ReactiveOperations each : List.of(collectives, named.of("x"))) {
          String thread =
              each.allReduce(new float[size], SUM)
                  .map(sums -> Thread.currentThread().getName())
                  .block(LONG);
          assertThat(thread).as("%s elements", size).startsWith("parallel-");
        }
      }
    }
  }

  @Test
  void shouldSignalNothingAfterACancel(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      if (rank.rank() == 0) {
        StepVerifier.create(sum(named, "x")).expectSubscription().thenCancel().verify(LONG);
      } else {
        assertThat(sum(named, "x").block(LONG)).isEqualTo(2L);
      }
      assertThat(sum(named, "x").block(LONG)).as("the next of the name").isEqualTo(2L);
    }
  }

  @Test
  void shouldKeepTheContextOfEachSubscriber(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      Flux<String> requests =
          Flux.fromIterable(names(rank))
              .flatMap(
                  name ->
                      sum(named, name)
                          .then(Mono.deferContextual(all -> Mono.just(all.<String>get("request"))))
                          .contextWrite(context -> context.put("request", name)));
      ParkingStepVerifier.create(requests.collectSortedList(), LONG)
          .expectNext(names(rank).stream().sorted().toList())
          .expectComplete()
          .verify(LONG);
    }
  }
}
