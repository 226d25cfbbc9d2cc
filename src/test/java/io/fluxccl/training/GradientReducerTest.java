// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.collective.NamedOptions;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;

@OnRanks(4)
class GradientReducerTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int[] SIZES = {1, 7, 1000, 150_000};

  /** The reducer of a rank, and what it uses. */
  private static final class Job implements AutoCloseable {
    final LocalRank rank;
    final NamedCollectives named;
    final Map<String, FloatView> gradients = new LinkedHashMap<>();
    final GradientReducer reducer;

    Job(LocalRank rank) {
      this.rank = rank;
      named = rank.collectives().named().join();
      for (int size : SIZES) {
        gradients.put("layer" + size, rank.device().allocateFloats(size));
      }
      reducer = GradientReducer.of(named, gradients);
    }

    void fill(float value) {
      gradients.values().forEach(view -> fill(view, value));
    }

    static void fill(FloatView view, float value) {
      float[] values = new float[(int) view.size()];
      Arrays.fill(values, value);
      view.put(values);
    }

    void assertAll(float value) {
      gradients.values().forEach(view -> assertThat(view.toArray()).containsOnly(value));
    }

    @Override
    public void close() {
      rank.awaitAll();
      Closing.all(reducer, named);
      Closing.all(gradients.values());
    }
  }

  @Test
  void shouldAverageGradientsThatAreReadyInAnyOrderOnAnyThread(LocalRank rank) {
    Random random = new Random(Rounds.SEED + rank.rank());
    ExecutorService threads = Executors.newFixedThreadPool(2);
    try (Job job = new Job(rank)) {
      List<String> names = new ArrayList<>(job.gradients.keySet());
      for (int round = 0; round < Rounds.of(20, 500); round++) {
        job.fill(round + rank.rank());
        Collections.shuffle(names, random);
        List<Mono<Void>> done = ready(job.reducer, names, round % 2 == 0 ? threads : Runnable::run);
        completes(job.reducer.finish());
        done.forEach(each -> completes(each)); // a signal that is over is repeated
        job.assertAll(round + 1.5f);
      }
    } finally {
      threads.shutdown();
    }
  }

  private static List<Mono<Void>> ready(
      GradientReducer reducer, List<String> names, Executor thread) {
    List<Mono<Void>> done = new ArrayList<>();
    Flux.fromIterable(names)
        .flatMap(name -> Mono.fromRunnable(() -> done.add(reducer.ready(name))))
        .subscribeOn(Schedulers.fromExecutor(thread))
        .blockLast(LONG);
    return done;
  }

  @Test
  void shouldAverageGradientsThatWereNotReported(LocalRank rank) {
    try (Job job = new Job(rank)) {
      job.fill(rank.rank());
      if (rank.rank() % 2 == 0) {
        job.reducer.ready("layer7");
      }
      completes(job.reducer.finish());
      job.assertAll(1.5f);
    }
  }

  @Test
  void shouldAverageOverTheRanksThatHaveABatch(LocalRank rank) {
    try (Job job = new Job(rank)) {
      int batches = new int[] {3, 1, 5, 0}[rank.rank()];
      List<Float> averages = new ArrayList<>();
      for (int i = 0; i < batches; i++) {
        Mono<Integer> count = job.reducer.begin();
        job.fill(1 + rank.rank());
        job.gradients.keySet().forEach(job.reducer::ready);
        completes(job.reducer.finish());
        StepVerifier.create(count).expectNextCount(1).expectComplete().verify(LONG);
        averages.add(job.gradients.get("layer1000").get(999));
      }
      List<Integer> counts =
          job.reducer
              .join()
              .doOnNext(count -> averages.add(job.gradients.get("layer1000").get(999)))
              .collectList()
              .block(LONG);
      assertThat(counts).isEqualTo(List.of(3, 2, 2, 1, 1).subList(batches, 5));
      // Of ranks 0, 1, 2 with the gradients 1, 2, 3.
      assertThat(averages).containsExactly(2f, 2f, 2f, 3f, 3f);
      // All may begin again, as in the next epoch.
      job.reducer.begin();
      job.fill(rank.rank());
      completes(job.reducer.finish());
      job.assertAll(1.5f);
    }
  }

  @Test
  void shouldFailAStepOnceIfARankLeaves(LocalRank rank) {
    Job job = new Job(rank);
    if (rank.rank() == 3) {
      job.named.close();
    } else {
      List<Mono<Void>> done = job.gradients.keySet().stream().map(job.reducer::ready).toList();
      StepVerifier.create(job.reducer.finish())
          .expectErrorSatisfies(
              failure ->
                  assertThat(failure).isInstanceOf(Aborted.class).hasMessageContaining("rank 3"))
          .verify(LONG);
      done.forEach(each -> fails(each, Aborted.class, "rank 3"));
    }
    job.close();
  }

  @Test
  void shouldFailAStepOnlyWhenNoneOfItsAveragesRuns(LocalRank rank) {
    try (Job job = new Job(rank)) {
      job.fill(rank.rank());
      if (rank.rank() == 3) {
        rank.awaitAll();
        completes(job.reducer.finish());
      } else {
        fails(job.reducer.ready("other"), InvalidUsage.class, "'other'");
        CompletableFuture<Void> end = job.reducer.finish().toFuture();
        assertThat(end).isNotDone(); // rank 3 takes part in no average yet
        fails(job.reducer.ready("layer7"), InvalidUsage.class, "'layer7'", "not over");
        fails(job.reducer.begin(), InvalidUsage.class, "begin", "not over");
        fails(job.reducer.finish(), InvalidUsage.class, "finish", "not over");
        rank.awaitAll();
        fails(end, InvalidUsage.class, "'other'");
      }
      job.assertAll(1.5f);
      rank.awaitAll();
      assertThat(job.reducer.begin().block(LONG)).isEqualTo(4);
      completes(job.reducer.finish());
    }
  }

  @Test
  void shouldFreeTheCounterOfRanksWhenItsSumHasEnded(LocalRank rank) throws Exception {
    try (Job job = new Job(rank)) {
      if (rank.rank() == 3) {
        rank.awaitAll();
      }
      CompletableFuture<Integer> count = job.reducer.begin().toFuture();
      job.reducer.close();
      if (rank.rank() != 3) {
        assertThat(job.reducer.flag.buffer().isClosed()).isFalse();
        rank.awaitAll();
      }
      assertThat(count.get(60, TimeUnit.SECONDS)).isEqualTo(4);
      assertThat(job.reducer.flag.buffer().isClosed()).isTrue();
      fails(job.reducer.begin(), InvalidUsage.class, "begin", "closed");
      fails(job.reducer.ready("layer7"), InvalidUsage.class, "'layer7'", "closed");
      fails(job.reducer.finish(), InvalidUsage.class, "'layer7'", "closed"); // the first failure
    }
  }

  @Test
  void shouldWaitAfterACloseForTheAveragesThatRun(LocalRank rank) {
    try (Job job = new Job(rank)) {
      job.fill(rank.rank());
      if (rank.rank() == 3) {
        rank.awaitAll();
        completes(job.reducer.ready("layer7"));
      } else {
        job.reducer.ready("layer7");
        job.reducer.close();
        CompletableFuture<Void> end = job.reducer.finish().toFuture();
        assertThat(end).isNotDone();
        rank.awaitAll();
        fails(end, InvalidUsage.class, "finish", "closed");
      }
      assertThat(job.gradients.get("layer7").toArray()).containsOnly(1.5f);
      assertThat(job.gradients.get("layer1000").toArray()).containsOnly(rank.rank());
    }
  }

  @Test
  void shouldBeginAStepAgainAfterItsSumHasFailed(LocalRank rank) {
    try (Job job = new Job(rank)) {
      String name = "fluxccl.training.participants";
      Mono<?> sum =
          rank.rank() == 3
              ? job.named.allReduce(name, job.gradients.get("layer7"), ReduceOp.SUM)
              : job.reducer.begin();
      fails(sum, InvalidUsage.class, name, "count=7", "count=1");
      rank.awaitAll(); // a rank that is late gets this error, too
      assertThat(job.reducer.join().collectList().block(LONG)).isEmpty();
    }
  }

  /** The others' averages of this gradient wait for it until it leaves. */
  @Test
  void shouldAverageOtherGradientsIfARankThatJoinsCanNotClearOne(LocalRank rank) {
    try (Job job = new Job(rank)) {
      if (rank.rank() == 3) {
        job.gradients.get("layer7").close();
        fails(job.reducer.join().then(), InvalidUsage.class, "closed");
        rank.awaitAll();
        job.named.close();
      } else {
        job.fill(2);
        job.reducer.begin();
        CompletableFuture<Void> end = job.reducer.ready("layer7").toFuture();
        for (String name : List.of("layer1", "layer1000", "layer150000")) {
          completes(job.reducer.ready(name));
          assertThat(job.gradients.get(name).toArray()).containsOnly(2);
        }
        assertThat(end).isNotDone();
        rank.awaitAll();
        fails(end, Aborted.class, "layer7");
        fails(job.reducer.finish(), Aborted.class, "layer7");
      }
    }
  }

  @Test
  void shouldCountRanksExactlyIfAllNamesAreCompressed(LocalRank rank) {
    NamedOptions options =
        NamedOptions.DEFAULT.withCompression(name -> Optional.of(DataType.BFLOAT16));
    try (NamedCollectives named = rank.collectives().named(options).join();
        FloatView gradient = rank.device().allocateFloats(10);
        GradientReducer reducer = GradientReducer.of(named, Map.of("layer", gradient))) {
      Job.fill(gradient, rank.rank());
      assertThat(reducer.begin().block(LONG)).isEqualTo(rank.nRanks());
      completes(reducer.finish());
      assertThat(gradient.toArray()).containsOnly(1.5f);
      rank.awaitAll();
    }
  }

  @Test
  void shouldRefuseWrongReports(LocalRank rank) {
    try (Job job = new Job(rank)) {
      job.fill(2);
      fails(job.reducer.ready("other"), InvalidUsage.class, "'other'", "no gradient");
      job.reducer.ready("layer7");
      fails(job.reducer.ready("layer7"), InvalidUsage.class, "'layer7'", "ready before");
      fails(job.reducer.begin(), InvalidUsage.class, "begun before");
      fails(job.reducer.finish(), InvalidUsage.class, "'other'"); // the first failure
      rank.awaitAll();
      completes(job.reducer.finish());
      job.assertAll(2);
      assertRefused(() -> GradientReducer.of(job.named, Map.of()), "gradients={}");
      String own = "fluxccl.training.participants";
      Map<String, FloatView> reserved = Map.of(own, job.gradients.get("layer7"));
      assertRefused(() -> GradientReducer.of(job.named, reserved), own);
      Map<String, FloatView> tooLong = Map.of("n".repeat(97), job.gradients.get("layer7"));
      assertRefused(() -> GradientReducer.of(job.named, tooLong), "97 bytes");
    }
  }
}
