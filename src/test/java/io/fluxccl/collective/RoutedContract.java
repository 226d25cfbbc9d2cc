// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT8_E4M3;
import static io.fluxccl.DataType.INT32;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.ExpertTrial.Routing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.publisher.Mono;

/** Calls whose sizes only the device knows: dispatch, combine, all-to-all-v with device counts. */
@Timeout(300)
@OnRanks(seconds = 100)
abstract class RoutedContract implements OnRanks.Opening {
  private static final Duration LONG = Duration.ofSeconds(100);

  private static final ExpertShape SMALL = new ExpertShape(37, 3, 16, 264, BFLOAT16, 8 * 37);
  private static final ExpertShape SCALED = new ExpertShape(40, 4, 16, 640, FLOAT8_E4M3, 8 * 40);

  private final List<Throwable> failures = new CopyOnWriteArrayList<>();

  @Override
  public Collectives open(LocalRank rank) {
    return NearWrap.of(rank.collectives());
  }

  @ParameterizedTest(name = "{1} {2} on {0} ranks")
  @CsvSource({
    "2, RANDOM, false",
    "2, RANDOM, true",
    "3, ALL_TO_ONE, false",
    "5, RANDOM, true",
    "8, RANDOM, true",
    "8, EMPTY_RANKS, false",
    "2, NONE, true"
  })
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldDispatchAndCombine(
      int nRanks, Routing routing, boolean isScaled, LocalRank rank, Collectives collectives) {
    ExpertShape wanted = isScaled ? SCALED : SMALL;
    // As many experts as the ranks can share evenly.
    ExpertShape shape =
        new ExpertShape(
            wanted.tokens(),
            wanted.topK(),
            16 / nRanks * nRanks,
            wanted.hidden(),
            wanted.type(),
            wanted.tokens() * nRanks);
    try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), nRanks)) {
      trial.upload(routing, nRanks, false);
      collectives.run(trial.dispatch()).block(LONG);
      trial.checkDispatch();
      collectives.run(trial.combine(false)).block(LONG);
      trial.checkCombine(false);
    }
  }

  private static Pipeline both(Collectives collectives, ExpertTrial trial, boolean ofRows) {
    return collectives.pipeline().then(trial.dispatch()).then(trial.combine(ofRows));
  }

  @Test
  void shouldReplayOneGraphWithOtherRoutingsBitIdentically(
      LocalRank rank, Collectives collectives) {
    ExpertShape shape = new ExpertShape(33, 4, 8, 256, FLOAT8_E4M3, 66);
    try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), 2);
        CapturedPipeline step = both(collectives, trial, true).capture()) {
      for (int seed = 1; seed <= 3; seed++) {
        trial.upload(Routing.RANDOM, seed, true);
        step.run().block(LONG);
        trial.checkDispatch();
        byte[] first = trial.checkCombine(true);
        step.run(3).block(LONG);
        assertThat(trial.checkCombine(true)).isEqualTo(first);
        rank.awaitAll();
      }
    }
  }

  /** A slice holds 14 such tokens when there are two ranks. */
  @Test
  void shouldDispatchAndCombineInSlices(LocalRank rank, Collectives collectives) {
    ExpertShape shape = new ExpertShape(31, 1, 2, 1 << 16, BFLOAT16, 62);
    try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), 2)) {
      trial.upload(Routing.RANDOM, 5, false);
      both(collectives, trial, false).run().block(LONG);
      trial.checkDispatch();
      trial.checkCombine(false);
    }
  }

  /** The fault of rank 1, the call that fails, and words of the error of all ranks. */
  private enum Wrong {
    EXPERT_ID(
        64,
        trial -> trial.writeId(3, 1, 99),
        (on, trial) -> on.run(trial.dispatch()),
        "rank 1",
        "dispatch",
        "id=99"),
    CAPACITY(5, trial -> {}, (on, trial) -> both(on, trial, false).run(), "dispatch", "capacity"),
    COMBINE_ROW(
        64,
        trial -> trial.writeRows(123_456),
        (on, trial) -> both(on, trial, true).run(),
        "rank 1",
        "combine",
        "row=123456");

    private final int capacity;
    private final Consumer<ExpertTrial> change;
    private final BiFunction<Collectives, ExpertTrial, Mono<Void>> call;
    private final String[] words;

    Wrong(
        int capacity,
        Consumer<ExpertTrial> change,
        BiFunction<Collectives, ExpertTrial, Mono<Void>> call,
        String... words) {
      this.capacity = capacity;
      this.change = change;
      this.call = call;
      this.words = words;
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldNameTheRankWithAWrongRouting(Wrong wrong, LocalRank rank, Collectives collectives) {
    ExpertShape shape = new ExpertShape(32, 2, 4, 64, BFLOAT16, wrong.capacity);
    try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), 2)) {
      trial.upload(Routing.RANDOM, 3, true);
      if (rank.rank() == 1) {
        wrong.change.accept(trial);
      }
      rank.awaitAll();
      // A rank that received all its rows may complete the call; its barrier then fails.
      Mono<Void> run = wrong.call.apply(collectives, trial).then(collectives.barrier());
      fails(run, FluxCclException.class, wrong.words);
      rank.awaitAll();
    }
  }

  @ParameterizedTest(name = "{1} of {0} ranks, packed {2}, {3}")
  @CsvSource({
    "2, 1000, true, BFLOAT16",
    "3, 77, false, UINT8",
    "8, 501, true, INT32",
    "2, 600000, false, FLOAT32"
  })
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldExchangeByCountsOfTheDevice(
      int nRanks,
      int most,
      boolean packed,
      DataType type,
      LocalRank rank,
      Collectives collectives) {
    try (Counted trial = new Counted(rank, most, packed, type);
        CapturedPipeline step = collectives.pipeline().then(trial.call()).capture()) {
      for (int seed = 0; seed < 3; seed++) {
        trial.upload(seed);
        rank.awaitAll();
        step.run().block(LONG);
        trial.check();
        rank.awaitAll();
      }
    }
  }

  @ParameterizedTest
  @CsvSource({"101, 0, count", "-1, 0, count", "100, 400, offset"})
  void shouldNameTheRankWithWrongCounts(
      long count, long offset, String word, LocalRank rank, Collectives collectives) {
    try (Counted trial = new Counted(rank, 100, false, INT32)) {
      trial.upload(1);
      if (rank.rank() == 1) {
        trial.write(0, 0, count);
        trial.write(1, 0, offset);
      }
      rank.awaitAll();
      Mono<Void> run = collectives.run(trial.call()).doOnError(failures::add);
      fails(run, FluxCclException.class, "all-to-all-v", "rank 1", word);
      trial.checkUntouched();
      rank.awaitAll();
      assertThat(failures).hasSize(2).anyMatch(InvalidUsage.class::isInstance);
    }
  }

  @Test
  void shouldNameTheRankThatSendsMoreThanTheReceiverHasRoomFor(
      LocalRank rank, Collectives collectives) {
    try (Counted trial = new Counted(rank, 100, false, INT32)) {
      trial.upload(1);
      if (rank.rank() == 0) {
        // The offset is so large that the elements received from rank 1 do not fit.
        trial.write(2, 1, trial.outputElements() - 1);
      } else {
        trial.write(0, 0, 50);
        trial.write(1, 0, 0);
      }
      rank.awaitAll();
      Mono<Void> run = collectives.run(trial.call()).then(collectives.barrier());
      fails(run, FluxCclException.class, "all-to-all-v", "rank 1", "50 elements", "room");
      rank.awaitAll();
    }
  }

  @Test
  void shouldRefuseInvalidShapesAndBuffers(LocalRank rank, Collectives collectives) {
    refuses(() -> new ExpertShape(1, 1, 1, 100, FLOAT8_E4M3, 1), "128");
    refuses(() -> new ExpertShape(1, 1, 1, 128, DataType.FLOAT32, 1));
    Device device = rank.device();
    ExpertShape uneven = new ExpertShape(4, 1, 3, 64, BFLOAT16, 8);
    refuses(() -> ExpertBatch.allocate(device, uneven, 2));
    ExpertShape even = new ExpertShape(4, 1, 4, 64, BFLOAT16, 8);
    try (ExpertBatch batch = ExpertBatch.allocate(device, even, 2)) {
      DeviceBuffer small = device.allocate(64);
      DeviceBuffer output = device.allocate(8 * 128);
      Mono<Void> run = collectives.dispatch(batch, small, null, output, null);
      fails(run, InvalidUsage.class, "dispatch");
      refuses(() -> collectives.dispatch(batch, output, small, output, small), "scales");
    }
  }

  @Test
  @OnRanks(1)
  void shouldRefuseDispatchIfThereIsOnlyOneRank(LocalRank rank, Collectives collectives) {
    ExpertShape shape = new ExpertShape(4, 1, 4, 64, BFLOAT16, 8);
    try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, 0, 1)) {
      fails(collectives.run(trial.dispatch()), InvalidUsage.class, "within a host");
    }
  }

  /** One rank's buffers of an all-to-all-v with counts on the device. */
  private static final class Counted implements AutoCloseable {
    private static final int GAP = 3;

    private final int rank;
    private final int nRanks;
    private final int most;
    private final boolean packed;
    private final DataType type;
    private final DeviceBuffer input;
    private final DeviceBuffer output;
    private final DeviceBuffer numbers;
    private int seed;

    Counted(LocalRank rank, int most, boolean packed, DataType type) {
      this.rank = rank.rank();
      this.nRanks = rank.nRanks();
      this.most = most;
      this.packed = packed;
      this.type = type;
      this.input = rank.device().allocate(outputElements() * type.size());
      this.output = rank.device().allocate(outputElements() * type.size());
      this.numbers = rank.device().allocate(4L * nRanks * Long.BYTES);
    }

    long outputElements() {
      return (long) (most + GAP) * nRanks;
    }

    /** Returns counts to send, offsets to send, offsets to receive or received counts. */
    private DeviceBuffer part(int index) {
      return numbers.slice((long) index * nRanks * Long.BYTES, (long) nRanks * Long.BYTES);
    }

    CollectiveCall call() {
      DeviceAllToAllV.Counts counts =
          packed
              ? DeviceAllToAllV.Counts.packed(part(0), part(3))
              : new DeviceAllToAllV.Counts(part(0), part(1), part(2), part(3));
      return CollectiveCall.allToAllv(input, output, counts, most, type);
    }

    private int count(int from, int to) {
      int number = new Random(seed * 101L + from * 17L + to).nextInt(most + 1);
      return (from + to + seed) % 3 == 0 ? 0 : number;
    }

    private int sendOffset(int from, int to) {
      return packed
          ? IntStream.range(0, to).map(peer -> count(from, peer)).sum()
          : (nRanks - 1 - to) * (most + GAP) + 1;
    }

    private int receiveOffset(int from, int to) {
      return packed
          ? IntStream.range(0, from).map(peer -> count(peer, to)).sum()
          : from * (most + GAP) + 2;
    }

    private byte[] content(int of) {
      return Bytes.random(seed * 13L + of, (int) outputElements() * type.size());
    }

    void upload(int newSeed) {
      seed = newSeed;
      input.upload(0, content(rank));
      output.upload(0, new byte[(int) output.size()]);
      for (int peer = 0; peer < nRanks; peer++) {
        write(0, peer, count(rank, peer));
        write(1, peer, sendOffset(rank, peer));
        write(2, peer, receiveOffset(peer, rank));
      }
    }

    void write(int part, int peer, long number) {
      part(part).upload((long) peer * Long.BYTES, bytes(number));
    }

    private static byte[] bytes(long... numbers) {
      ByteBuffer bytes = ByteBuffer.allocate(8 * numbers.length).order(ByteOrder.LITTLE_ENDIAN);
      bytes.asLongBuffer().put(numbers);
      return bytes.array();
    }

    void check() {
      ByteBuffer expected = ByteBuffer.allocate((int) output.size());
      for (int from = 0; from < nRanks; from++) {
        int at = sendOffset(from, rank) * type.size();
        int to = receiveOffset(from, rank) * type.size();
        expected.put(to, content(from), at, count(from, rank) * type.size());
      }
      assertThat(Arrays.mismatch(Bytes.of(output), expected.array()))
          .as("first wrong byte on rank %d, call %d", rank, seed)
          .isEqualTo(-1);
      long[] counts = IntStream.range(0, nRanks).mapToLong(from -> count(from, rank)).toArray();
      assertThat(Bytes.of(part(3))).isEqualTo(bytes(counts));
    }

    /** Checks that no row of rank 1 was written; rows of rank 0 itself may be. */
    void checkUntouched() {
      byte[] bytes = Bytes.of(output);
      int begin = receiveOffset(1, rank) * type.size();
      assertThat(Arrays.copyOfRange(bytes, begin, bytes.length)).containsOnly(0);
    }

    @Override
    public void close() {
      input.close();
      output.close();
      numbers.close();
    }
  }
}
