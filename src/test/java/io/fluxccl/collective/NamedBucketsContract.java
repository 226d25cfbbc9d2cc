// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Small all-reduces that become one call. */
@OnRanks(value = 3, seconds = 120)
abstract class NamedBucketsContract {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofSeconds(10);
  private static final int TENSORS = 24;
  private static final int MOST = 3000;
  private static final NamedOptions SINGLE = NamedOptions.DEFAULT.withBucketBytes(0);

  /** Returns the same sizes on every rank. */
  private static int size(int tensor) {
    return tensor == 0 ? 1 : new Random(Rounds.SEED + tensor).nextInt(MOST) + 1;
  }

  private static List<FloatView> tensors(LocalRank rank, DataType type) {
    return IntStream.range(0, TENSORS)
        .mapToObj(i -> FloatView.of(rank.device().allocate(type.bytes(size(i))), type))
        .toList();
  }

  private static void fill(List<FloatView> tensors, Random random) {
    for (FloatView each : tensors) {
      float[] values = new float[(int) each.size()];
      for (int i = 0; i < values.length; i++) {
        values[i] = (float) random.nextGaussian();
      }
      each.put(values);
    }
  }

  private static void close(List<FloatView> tensors) {
    Closing.all(tensors.stream().map(FloatView::buffer).toList());
  }

  /** Subscribes to all in an order of this rank's. */
  private static Mono<Void> reduce(
      NamedCollectives named, List<FloatView> tensors, ReduceOp op, Random random) {
    List<Integer> order = new ArrayList<>(IntStream.range(0, tensors.size()).boxed().toList());
    Collections.shuffle(order, random);
    return Flux.fromIterable(order)
        .flatMap(i -> named.allReduce("tensor " + i, tensors.get(i), op))
        .then();
  }

  private static List<float[]> values(List<FloatView> tensors) {
    return tensors.stream().map(FloatView::toArray).toList();
  }

  @Test
  void shouldGiveTheBitsOfOrderedCalls(LocalRank rank) {
    Random random = new Random(Rounds.SEED + rank.rank());
    long calls = 0;
    try (NamedCollectives named = rank.collectives().named().join()) {
      for (DataType type : List.of(DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16)) {
        List<FloatView> tensors = tensors(rank, type);
        for (ReduceOp op : List.of(SUM, AVG, MAX)) {
          fill(tensors, random);
          List<float[]> inputs = values(tensors);
          Flux.fromIterable(tensors)
              .concatMap(each -> rank.collectives().allReduce(each, op))
              .blockLast(LONG);
          List<float[]> expected = values(tensors);
          for (int i = 0; i < TENSORS; i++) {
            tensors.get(i).put(inputs.get(i));
          }
          completes(reduce(named, tensors, op, random));
          calls += TENSORS;
          for (int i = 0; i < TENSORS; i++) {
            assertThat(tensors.get(i).toArray()).as("tensor %s", i).isEqualTo(expected.get(i));
          }
        }
        close(tensors);
      }
      assertThat(named.lane.rounds).as("operations").isLessThan(calls * 3 / 4);
    }
  }

  @Test
  void shouldBeRightInManyRounds(LocalRank rank) {
    Random random = new Random(Rounds.SEED + rank.rank());
    List<FloatView> tensors = tensors(rank, DataType.FLOAT32);
    int rounds = Rounds.of(40, 10_000);
    try (NamedCollectives named = rank.collectives().named().join()) {
      for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < TENSORS; i++) {
          float[] values = new float[size(i)];
          Arrays.fill(values, (round + i) % 100 + rank.rank());
          tensors.get(i).put(values);
        }
        completes(reduce(named, tensors, MAX, random));
        for (int i = 0; i < TENSORS; i++) {
          float largest = (round + i) % 100 + rank.nRanks() - 1;
          assertThat(tensors.get(i).toArray()).as("%s of %s", i, round).containsOnly(largest);
        }
      }
    }
    close(tensors);
  }

  @Test
  void shouldFuseNothingWithoutBuckets(LocalRank rank) {
    List<FloatView> tensors = tensors(rank, DataType.FLOAT32);
    try (NamedCollectives named = rank.collectives().named(SINGLE).join()) {
      completes(reduce(named, tensors, SUM, new Random(Rounds.SEED)));
      assertThat(named.lane.rounds).isEqualTo(TENSORS);
    }
    close(tensors);
  }

  @Test
  void shouldReduceAMemberIfItsSubscriberHasCancelled(LocalRank rank) {
    List<FloatView> tensors = tensors(rank, DataType.FLOAT32);
    tensors.forEach(each -> each.put(0, rank.rank() + 1));
    int cancelled = TENSORS / 2;
    try (NamedCollectives named = rank.collectives().named().join()) {
      List<CompletableFuture<Void>> runs = new ArrayList<>();
      for (int i = 0; i < TENSORS; i++) {
        Mono<Void> run = named.allReduce("tensor " + i, tensors.get(i), SUM);
        if (rank.rank() == 1 && i == cancelled) {
          Disposable subscription = run.subscribe();
          subscription.dispose();
        } else {
          runs.add(run.toFuture());
        }
      }
      runs.forEach(each -> assertThat(each).succeedsWithin(LONG));
      completes(named.barrier("all"));
      tensors.forEach(each -> assertThat(each.get(0)).isEqualTo(6));
    }
    close(tensors);
  }

  @Test
  void shouldTimeOutAloneIfARankSubscribesToAllNamesButOne(LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withTimeout(SHORT).withSetupTimeout(LONG);
    List<FloatView> tensors = tensors(rank, DataType.FLOAT32);
    try (Collectives collectives = lane(rank, options);
        NamedCollectives named = collectives.named().join()) {
      List<Mono<Void>> runs =
          IntStream.range(0, TENSORS)
              .mapToObj(i -> named.allReduce("tensor " + i, tensors.get(i), SUM))
              .toList();
      boolean isLate = rank.rank() == 1;
      List<CompletableFuture<Void>> all =
          runs.stream().skip(isLate ? 1 : 0).map(Mono::toFuture).toList();
      all.stream().skip(isLate ? 0 : 1).forEach(run -> assertThat(run).succeedsWithin(LONG));
      if (!isLate) {
        fails(all.get(0), Timeout.class, "'tensor 0'", "ranks [1] have not subscribed");
      }
      rank.awaitAll();
      completes(named.barrier("after"));
    }
    close(tensors);
  }

  @Test
  void shouldEndTheJobIfAMemberIsClosedBeforeItBegins(LocalRank rank) {
    List<FloatView> tensors = tensors(rank, DataType.FLOAT32);
    NamedCollectives named = rank.collectives().named().join();
    if (rank.rank() == 1) {
      for (int i = 0; i < TENSORS; i++) {
        named.allReduce("tensor " + i, tensors.get(i), SUM).subscribe(null, failure -> {});
      }
      tensors.get(1).close();
    }
    rank.awaitAll();
    if (rank.rank() != 1) {
      reduce(named, tensors, SUM, new Random(0)).subscribe(null, failure -> {});
    }
    failsJob(rank, FluxCclException.class, "closed");
    named.close();
  }

  @Test
  void shouldFailOnAllRanksIfOneHasNoMemoryForBuckets(LocalRank rank) {
    Lane lane = lane(rank, CollectivesOptions.DEFAULT).lane;
    Supplier<NamedBuckets> full =
        () -> {
          throw new DeviceFailure(2, "CUDA_ERROR_OUT_OF_MEMORY", "no memory, as the test wants");
        };
    boolean isFull = rank.rank() == 1;
    CompletableFuture<NamedCollectives> opened =
        isFull
            ? NamedCollectives.open(lane, SINGLE.withBucketBytes(1 << 20), full)
            : NamedCollectives.open(lane, SINGLE.withBucketBytes(1 << 20));
    Class<? extends FluxCclException> type = isFull ? DeviceFailure.class : RemoteFailure.class;
    fails(opened, type, "no memory, as the test wants");
    rank.awaitAll();
    assertThat(rank.communicator().failure()).isNull();
  }

  @Test
  void shouldRefuseBucketsOfDifferentSizes(LocalRank rank) {
    NamedOptions options = NamedOptions.DEFAULT.withBucketBytes(rank.rank() == 0 ? 0 : 1 << 20);
    String[] parts = {"bucketBytes", "on rank"};
    fails(rank.collectives().named(options), InvalidUsage.class, parts);
    rank.awaitAll();
    assertThat(rank.communicator().failure()).isNull();
  }
}
