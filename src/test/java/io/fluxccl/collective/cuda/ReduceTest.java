// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NearWrap;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Every algorithm of the family, on GPUs or with its kernels on the CPU. */
class ReduceTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  /**
   * Emulated GPUs are slow: without -Plong they run a ninth of the cases, spread over types and
   * counts, and fewer with many ranks.
   */
  private static final boolean THIN = EmulatedGpus.HERE && !Rounds.LONG;

  /** Offsets of input and output from the start of a cache line, in bytes. */
  private static final int[][] SHIFTS = {{0, 0}, {16, 32}, {8, 0}, {4, 8}, {2, 4}, {1, 1}};

  private static final List<Collective> KINDS =
      List.of(Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE);

  /** Algorithms that need registered memory; on GPUs the two-shot ones get it too. */
  private static final String REGISTERED = "two-shots-bulk|staggered-direct|copy-engines-reduce";

  /** Algorithms that emulated GPUs, which are slow, run on eight ranks too. */
  private static final String OF_EIGHT = "two-shots-(ll128|sentinel|bulk)|staggered-.*";

  private final Map<Integer, int[]> results = new ConcurrentHashMap<>();

  static Stream<Arguments> algorithms() {
    return Stream.of(
            "one-shot-ll8",
            "one-shot-ll128",
            "one-shot-sentinel",
            "two-shots-ll8",
            "two-shots-ll128",
            "two-shots-sentinel",
            "two-shots-bulk",
            "staggered-direct",
            "staggered-staged",
            "copy-engines-reduce")
        .flatMap(
            algorithm ->
                IntStream.of(2, 3, 4, 8)
                    .filter(n -> EmulatedGpus.HERE ? isEmulated(algorithm, n) : n != 3)
                    .mapToObj(nRanks -> Arguments.of(algorithm, nRanks)));
  }

  /**
   * Returns whether emulated GPUs run an algorithm: four ranks if these have a kernel of their own.
   */
  private static boolean isEmulated(String algorithm, int nRanks) {
    return nRanks < 4 || algorithm.matches(nRanks == 4 ? ".*-sentinel" : OF_EIGHT);
  }

  /** More ranks than GPUs share them. */
  @EmulatedGpus
  @RequiresGpus(2)
  @ParameterizedTest(name = "{0} on {1} ranks")
  @MethodSource("algorithms")
  void shouldReduceWhateverTheTypeOperationAndPlace(String algorithm, int nRanks) {
    boolean isOneShot = algorithm.startsWith("one-shot");
    if (EmulatedGpus.HERE) {
      boolean isRegistered = algorithm.matches(REGISTERED);
      List<Integer> counts =
          isRegistered ? List.of(1, 1001, 40_003) : List.of(1, 7, 130, 1001, 4099);
      check(algorithm, isRegistered, nRanks, counts, 50);
    } else {
      List<Integer> few = List.of(1, 1001, 40_003);
      List<Integer> more = List.of(1, 7, 1001, 40_003, isOneShot ? 130_003 : 1_000_003);
      check(algorithm, !isOneShot, nRanks, nRanks == 8 ? few : more, 50);
    }
  }

  /** Checks that the algorithm supports at least {@code least} calls with correct results. */
  private static void check(
      String algorithm, boolean registered, int nRanks, List<Integer> counts, int least) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      AtomicInteger done = new AtomicInteger();
      ranks.run(LONG, rank -> new Trial(algorithm, registered, done).check(rank, counts));
      assertThat(done.get()).isGreaterThan(THIN ? least / 20 : least);
    }
  }

  /** With a single peer, one-shot algorithms send larger messages than with several. */
  @EmulatedGpus
  @ParameterizedTest
  @ValueSource(strings = {"one-shot-ll128", "one-shot-sentinel"})
  void shouldReduceLargerMessagesInOneShotBetweenTwoRanks(String algorithm) {
    check(algorithm, false, 2, List.of(130_003), 20);
  }

  /** Several times the scratch size; blocks in lockstep would hide races between slices. */
  @EmulatedGpus
  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 3})
  @Tag("any-order")
  void shouldReduceInSlices(int nRanks) {
    check("staggered-staged", false, nRanks, List.of(70_003), 20);
  }

  /** Words of ones mark empty slots, so they are the only NaNs that are not sent unchanged. */
  @EmulatedGpus
  @ParameterizedTest(name = "{1} of {2} on {0} ranks")
  @CsvSource({
    "2, MAX, FLOAT32",
    "3, MAX, FLOAT32",
    "4, MAX, FLOAT32",
    "4, MIN, FLOAT16",
    "3, MIN, FLOAT64",
    "2, MAX, FLOAT16",
    "2, MIN, FLOAT16",
    "3, MIN, BFLOAT16"
  })
  @OnRanks(value = OnRanks.FIRST_ARGUMENT, seconds = 300)
  void shouldProduceIdenticalNansOnAllRanks(
      int nRanks, ReduceOp op, DataType type, LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, "one-shot-sentinel");
    IntView words = rank.device().allocateInts(300);
    words.put(ones(rank.rank()));
    DeviceBuffer buffer = words.buffer();
    lane(rank, options).allReduce(buffer, buffer, 1200 / type.size(), type, op).block();
    results.put(rank.rank(), words.toArray());
    rank.awaitAll();
    assertThat(words.toArray()).isEqualTo(results.get(0));
  }

  private static int[] ones(int rank) {
    int[] words = {-1, 0x3c00ffff, 0xffff3c00, 0x3c003c00};
    int step = rank == 0 ? 1 : rank == 1 ? 4 : 16;
    return IntStream.range(0, 300).map(i -> words[i / step % 4]).toArray();
  }

  /** The element counts change algorithms and grids between calls. */
  @EmulatedGpus
  @ParameterizedTest
  @ValueSource(ints = {2, 4, 5})
  @OnRanks(value = OnRanks.FIRST_ARGUMENT, seconds = 300)
  void shouldKeepResultsApartWhenAllSizesAndKindsFollowEachOther(
      int nRanks, LocalRank rank, Collectives collectives) {
    SplittableRandom random = new SplittableRandom(4);
    List<Collective> kinds =
        List.of(Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE);
    List<RandomCollectiveCase.Run> runs = new ArrayList<>();
    for (int i = 0; i < Rounds.of(25, 60); i++) {
      int count = 1 + random.nextInt(1 << random.nextInt(4, 16));
      DeviceBuffer memory =
          rank.device().allocate(RandomCollectiveCase.memory(nRanks, count * FLOAT32.size()));
      if (i % 2 == 0) {
        collectives.register(memory).join();
      }
      runs.add(
          new RandomCollectiveCase(new Random(i), nRanks, kinds.get(i % 3), 8)
              .with(FLOAT32, count, false)
              .ofAnyBits(SUM)
              .on(rank.rank(), memory));
    }
    // All of them are enqueued before the first is done.
    Flux.merge(runs.stream().map(run -> collectives.run(run.call)).toList()).then().block();
    runs.forEach(RandomCollectiveCase.Run::verify);
  }

  /** Checks an algorithm on one of any number of ranks. */
  private record Trial(String algorithm, boolean registered, AtomicInteger done) {
    void check(LocalRank rank, List<Integer> counts) {
      CollectivesOptions options = CollectivesOptions.DEFAULT.withTimeout(LONG);
      for (Collective each : KINDS) {
        options = options.withAlgorithm(each, algorithm);
      }
      int n = rank.nRanks();
      int most = counts.stream().mapToInt(i -> i).max().orElse(0) * 8;
      try (Collectives collectives = NearWrap.of(lane(rank, options));
          DeviceBuffer memory = rank.device().allocate(RandomCollectiveCase.memory(n, most))) {
        if (registered) {
          collectives.register(memory).join();
        }
        int i = 0;
        for (Collective kind : KINDS) {
          for (DataType type : DataType.values()) {
            for (int count : counts) {
              int every = !THIN ? 1 : n < 8 ? 9 : 17;
              if (i % every == i / every % every) {
                ReduceOp op = ReduceOp.values()[i % ReduceOp.values().length];
                DeviceBuffer part =
                    memory.slice(0, RandomCollectiveCase.memory(n, count * type.size()));
                int[] shifts = SHIFTS[i / 2 % SHIFTS.length];
                boolean inPlace = i % 2 == 0;
                Random random = new Random(i);
                run(
                    collectives,
                    new RandomCollectiveCase(random, n, kind, 8)
                        .with(type, count, inPlace)
                        .ofAnyBits(op)
                        .at(
                            shifts[0] / type.size() * type.size(),
                            shifts[1] / type.size() * type.size())
                        .on(rank.rank(), part),
                    inPlace);
                run(
                    collectives,
                    new RandomCollectiveCase(random, n, kind, 8)
                        .with(type, count, !inPlace)
                        .ofAnyBits(ReduceOp.SUM)
                        .on(rank.rank(), part),
                    !inPlace);
              }
              i++;
            }
          }
        }
      }
    }

    private void run(Collectives collectives, RandomCollectiveCase.Run run, boolean inPlace) {
      if (isSupported(collectives, run.call)) {
        Mono<Void> once = collectives.run(run.call);
        (inPlace ? once : Flux.concat(once, once, once).then()).block(LONG);
        run.verify();
        done.incrementAndGet();
      }
    }

    private boolean isSupported(Collectives collectives, CollectiveCall call) {
      try {
        return collectives.algorithmFor(call).equals(algorithm);
      } catch (InvalidUsage none) {
        return false;
      }
    }
  }
}
