// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.util.retry.Retry;

/** Collectives that match by name. */
@OnRanks(value = 3, seconds = 120)
abstract class NamedCollectivesContract {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final Duration SHORT = Duration.ofSeconds(10);
  private static final int BUCKETS = 8;
  private static final int MOST_DELAY_MILLIS = 3;

  private static FloatView floats(LocalRank rank, int size, float value) {
    FloatView view = rank.device().allocateFloats(size);
    fill(view, value);
    return view;
  }

  private static void fill(FloatView view, float value) {
    float[] values = new float[(int) view.size()];
    Arrays.fill(values, value);
    view.put(values);
  }

  @Test
  void shouldMatchCallsThatRanksBeginInDifferentOrders(LocalRank rank) {
    Random random = new Random(Rounds.SEED + rank.rank());
    List<FloatView> buckets =
        IntStream.range(0, BUCKETS).mapToObj(i -> floats(rank, 1000 * (i + 1), 0)).toList();
    List<Integer> order = new ArrayList<>(IntStream.range(0, BUCKETS).boxed().toList());
    try (NamedCollectives named = rank.collectives().named().join()) {
      int rounds = Rounds.of(30, 1000);
      for (int round = 0; round < rounds; round++) {
        Collections.shuffle(order, random);
        for (int i = 0; i < BUCKETS; i++) {
          fill(buckets.get(i), i + round);
        }
        int delay = random.nextInt(MOST_DELAY_MILLIS);
        completes(
            Flux.fromIterable(order)
                .flatMap(
                    i ->
                        Mono.delay(Duration.ofMillis(i % 2 == 0 ? delay : 0))
                            .then(named.allReduce("bucket " + i, buckets.get(i), MAX)))
                .then());
        for (int i = 0; i < BUCKETS; i++) {
          assertThat(buckets.get(i).toArray()).containsOnly(i + round);
        }
      }
    }
    Closing.all(buckets.stream().map(FloatView::buffer).toList());
  }

  @Test
  void shouldRunAllKindsOfOperations(LocalRank rank) {
    int n = rank.nRanks();
    try (NamedCollectives named = rank.collectives().named().join();
        FloatView one = floats(rank, 4, rank.rank());
        FloatView all = floats(rank, 4 * n, -1)) {
      completes(named.of("gather").allGather(one, all));
      assertThat(all.toArray()[4 * (n - 1)]).isEqualTo(n - 1);
      completes(named.of("scatter").reduceScatter(all, one, SUM));
      assertThat(one.toArray()).containsOnly(n * rank.rank());
      completes(named.of("broadcast").broadcast(one, 1));
      assertThat(one.toArray()).containsOnly(n);
      completes(named.barrier("barrier"));
    }
  }

  @Test
  void shouldNameRanksThatHaveNotSubscribedAndMatchRetries(LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withTimeout(SHORT).withSetupTimeout(LONG);
    try (Collectives collectives = lane(rank, options);
        NamedCollectives named = collectives.named().join();
        FloatView x = floats(rank, 4, 1)) {
      boolean isLate = rank.rank() == rank.nRanks() - 1;
      rank.awaitAll();
      if (!isLate) {
        String missing = "ranks [" + (rank.nRanks() - 1) + "] have not subscribed";
        fails(named.allReduce("x", x, SUM), Timeout.class, "'x'", missing);
      }
      rank.awaitAll();
      completes(named.allReduce("x", x, SUM).retryWhen(Retry.max(isLate ? 1 : 0)).then());
      assertThat(x.toArray()).containsOnly(rank.nRanks());
    }
  }

  @Test
  void shouldShowBothSignaturesThatDiffer(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join();
        FloatView x = floats(rank, rank.rank() == 1 ? 8 : 4, 1);
        FloatView y = floats(rank, 4, 1)) {
      fails(named.allReduce("x", x, SUM), InvalidUsage.class, "'x'", "count=4", "count=8");
      completes(named.allReduce("y", y, SUM));
      assertThat(y.toArray()).containsOnly(rank.nRanks());
      assertRefused(() -> named.of(""), "name=''");
      assertRefused(() -> named.of("n".repeat(97)), "97 bytes");
    }
  }

  @Test
  void shouldRunThePartOfASubscriberThatHasCancelled(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join();
        FloatView x = floats(rank, 4, 1)) {
      if (rank.rank() == 0) {
        Disposable cancelled = named.allReduce("x", x, SUM).subscribe();
        cancelled.dispose();
      } else {
        completes(named.allReduce("x", x, SUM));
      }
      completes(named.barrier("after"));
      assertThat(x.toArray()).containsOnly(rank.nRanks());
      assertThat(named.lane.roundsToLeave())
          .as("so long as its calls may begin, a rank that leaves may take part in more")
          .isEqualTo(Long.MAX_VALUE);
    }
  }

  @Test
  void shouldFailCallsOfRanksThatOthersHaveLeft(LocalRank rank) {
    NamedCollectives named = rank.collectives().named().join();
    int leaving = rank.nRanks() - 1;
    if (rank.rank() == leaving) {
      named.close();
      fails(named.barrier("x"), Aborted.class, "were closed");
    } else {
      fails(named.barrier("x"), Aborted.class, "rank " + leaving + " has closed");
      // Only the first one waits for news of that rank.
      Flux<Throwable> more =
          Flux.range(0, 40)
              .concatMap(
                  i -> named.barrier("y" + i).cast(Throwable.class).onErrorResume(Mono::just));
      assertThat(more.collectList().toFuture()).succeedsWithin(Duration.ofSeconds(20));
    }
    rank.awaitAll();
    named.close();
    assertThat(named.ended()).succeedsWithin(LONG);
    rank.awaitAll();
    assertThat(rank.communicator().failure()).isNull();
  }

  @Test
  void shouldRunTheCancelledPartOfARankThatCloses(LocalRank rank) {
    NamedCollectives named = rank.collectives().named().join();
    try (FloatView x = floats(rank, 4, 1)) {
      boolean leaves = rank.rank() == rank.nRanks() - 1;
      if (leaves) {
        named.barrier("first").block(LONG);
        named.allReduce("x", x, SUM).subscribe().dispose();
        rank.awaitAll();
        named.close();
        assertThat(named.ended()).succeedsWithin(LONG);
      } else {
        named.barrier("first").block(LONG);
        CompletableFuture<Void> run = named.allReduce("x", x, SUM).toFuture();
        rank.awaitAll();
        // The rank that leaves may have sent its part, or has left before all were there.
        assertThat(run.handle((done, failure) -> failure == null || failure instanceof Aborted))
            .succeedsWithin(LONG)
            .isEqualTo(true);
        named.close();
      }
      assertThat(named.ended()).succeedsWithin(LONG);
      rank.awaitAll();
      assertThat(rank.communicator().failure()).isNull();
    }
  }

  @Test
  void shouldRefuseCallsThatThisRankCanNotRun(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join();
        FloatView x = floats(rank, 4, 1)) {
      FloatView closed = floats(rank, 4, 1);
      closed.close();
      fails(named.allReduce("x", closed, SUM), InvalidUsage.class, "closed");
      completes(named.allReduce("x", x, SUM));
      assertThat(x.toArray()).containsOnly(rank.nRanks());
    }
  }

  @Test
  void shouldServeOtherCallsIfASubscriberThrows(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      named
          .barrier("x")
          .subscribe(
              null,
              failure -> {},
              () -> {
                throw new IllegalStateException("as the test wants");
              });
      completes(named.barrier("y"));
    }
  }

  @Test
  void shouldEndWaitingCallsWhenTheJobFails(LocalRank rank) {
    NamedCollectives named = rank.collectives().named().join();
    if (rank.rank() == 1) {
      rank.communicator().abort(Aborted.of(1, "as the test wants"));
    }
    fails(named.barrier("x-" + rank.rank()), Aborted.class, "as the test wants");
    named.close();
  }

  @Test
  void shouldKeepMoreCallsThanItsRingsHold(LocalRank rank) {
    int calls = 4 * NamedLink.slots(1);
    int first = rank.rank() * calls / rank.nRanks();
    try (NamedCollectives named = rank.collectives().named().join()) {
      List<CompletableFuture<Void>> all =
          IntStream.range(0, calls)
              .mapToObj(i -> named.barrier("call " + (first + i) % calls).toFuture())
              .toList();
      all.forEach(each -> assertThat(each).succeedsWithin(LONG));
    }
  }

  @Test
  void shouldFreeAllOnAThreadThatMayBlock(LocalRank rank) {
    NamedCollectives named = rank.collectives().named().join();
    CompletableFuture<String> thread =
        named.ended().thenApply(freed -> Thread.currentThread().getName());
    named.close();
    assertThat(thread).succeedsWithin(LONG).asString().startsWith("fluxccl-blocking");
    rank.awaitAll();
  }

  @Test
  void shouldPassTheSubscribersContext(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      Mono<String> run =
          named
              .barrier("x")
              .then(Mono.deferContextual(context -> Mono.just(context.<String>get("request"))))
              .contextWrite(context -> context.put("request", "42"));
      ParkingStepVerifier.create(run, LONG).expectNext("42").expectComplete().verify(LONG);
    }
  }
}
