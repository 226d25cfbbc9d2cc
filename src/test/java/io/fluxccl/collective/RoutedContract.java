// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.ExpertTrial.Routing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Calls whose sizes lie on the device, against a plain computation, on any device. */
@Timeout(300)
abstract class RoutedContract {
  static final Duration LONG = Duration.ofSeconds(100);

  private static final ExpertShape SMALL =
      new ExpertShape(37, 3, 16, 264, DataType.BFLOAT16, 8 * 37);
  private static final ExpertShape SCALED =
      new ExpertShape(40, 4, 16, 640, DataType.FLOAT8_E4M3, 8 * 40);

  abstract LocalRanks ranks(int n);

  interface Body {
    void run(LocalRank rank, Collectives collectives) throws Exception;
  }

  void onEachRank(int nRanks, Body body) {
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives =
                NearWrap.of(Collectives.create(rank.communicator()).join())) {
              body.run(rank, collectives);
            }
          });
    }
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
  void shouldDispatchAndCombine(int nRanks, Routing routing, boolean isScaled) {
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
    onEachRank(
        nRanks,
        (rank, collectives) -> {
          try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), nRanks)) {
            trial.upload(routing, nRanks, false);
            collectives.run(trial.dispatch()).block(LONG);
            trial.checkDispatch();
            collectives.run(trial.combine(false)).block(LONG);
            trial.checkCombine(false);
          }
        });
  }

  @Test
  void shouldReplayOneGraphWithOtherRoutingsBitIdentically() {
    ExpertShape shape = new ExpertShape(33, 4, 8, 256, DataType.FLOAT8_E4M3, 66);
    onEachRank(
        2,
        (rank, collectives) -> {
          try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), 2);
              CapturedPipeline step =
                  collectives
                      .pipeline()
                      .then(trial.dispatch())
                      .then(trial.combine(true))
                      .capture()) {
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
        });
  }

  /** A slice holds 14 such tokens when there are two ranks. */
  @Test
  void shouldDispatchAndCombineInSlices() {
    ExpertShape shape = new ExpertShape(31, 1, 2, 1 << 16, DataType.BFLOAT16, 62);
    onEachRank(
        2,
        (rank, collectives) -> {
          try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), 2)) {
            trial.upload(Routing.RANDOM, 5, false);
            collectives
                .pipeline()
                .then(trial.dispatch())
                .then(trial.combine(false))
                .run()
                .block(LONG);
            trial.checkDispatch();
            trial.checkCombine(false);
          }
        });
  }

  @Test
  void shouldNameTheRankIfAnExpertIdDoesNotExist() {
    expectFailure(
        trial -> trial.writeId(3, 1, 99),
        (trial, collectives) -> collectives.run(trial.dispatch()).block(LONG),
        64,
        "rank 1",
        "dispatch",
        "id=99");
  }

  @Test
  void shouldNameTheRankWithoutCapacityAlsoIfTheCombineIsEnqueuedAlready() {
    expectFailure(
        trial -> {},
        (trial, collectives) ->
            collectives
                .pipeline()
                .then(trial.dispatch())
                .then(trial.combine(false))
                .run()
                .block(LONG),
        5,
        "dispatch",
        "capacity");
  }

  @Test
  void shouldNameTheRankIfACombineRowDoesNotExist() {
    expectFailure(
        trial -> trial.writeRows(123_456),
        (trial, collectives) ->
            collectives
                .pipeline()
                .then(trial.dispatch())
                .then(trial.combine(true))
                .run()
                .block(LONG),
        64,
        "rank 1",
        "combine",
        "row=123456");
  }

  interface Change {
    void of(ExpertTrial trial);
  }

  interface Use {
    void of(ExpertTrial trial, Collectives collectives);
  }

  /** Expects that all ranks fail with an error of those words if rank 1 changes its trial. */
  private void expectFailure(Change change, Use use, int capacity, String... words) {
    ExpertShape shape = new ExpertShape(32, 2, 4, 64, DataType.BFLOAT16, capacity);
    onEachRank(
        2,
        (rank, collectives) -> {
          try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, rank.rank(), 2)) {
            trial.upload(Routing.RANDOM, 3, true);
            if (rank.rank() == 1) {
              change.of(trial);
            }
            rank.awaitAll();
            // A rank that received all its rows may complete the call; its barrier then fails.
            assertThatThrownBy(
                    () -> {
                      use.of(trial, collectives);
                      collectives.barrier().block(LONG);
                    })
                .isInstanceOf(FluxCclException.class)
                .hasMessageContainingAll(words);
            rank.awaitAll();
          }
        });
  }

  @ParameterizedTest(name = "{1} of {0} ranks, packed {2}, {3}")
  @CsvSource({
    "2, 1000, true, BFLOAT16",
    "3, 77, false, UINT8",
    "8, 501, true, INT32",
    "2, 600000, false, FLOAT32"
  })
  void shouldExchangeByCountsOfTheDevice(int nRanks, int most, boolean packed, DataType type) {
    onEachRank(
        nRanks,
        (rank, collectives) -> {
          try (Counted trial = new Counted(rank.device(), rank.rank(), nRanks, most, packed, type);
              CapturedPipeline step = collectives.pipeline().then(trial.call()).capture()) {
            for (int seed = 0; seed < 3; seed++) {
              trial.upload(seed);
              rank.awaitAll();
              step.run().block(LONG);
              trial.check();
              rank.awaitAll();
            }
          }
        });
  }

  @ParameterizedTest
  @CsvSource({"101, 0, count", "-1, 0, count", "100, 400, offset"})
  void shouldNameTheRankWithWrongCounts(long count, long offset, String word) {
    List<Throwable> failures = new CopyOnWriteArrayList<>();
    onEachRank(
        2,
        (rank, collectives) -> {
          try (Counted trial =
              new Counted(rank.device(), rank.rank(), 2, 100, false, DataType.INT32)) {
            trial.upload(1);
            if (rank.rank() == 1) {
              trial.write(count, offset);
            }
            rank.awaitAll();
            assertThatThrownBy(() -> collectives.run(trial.call()).block(LONG))
                .isInstanceOf(FluxCclException.class)
                .hasMessageContainingAll("all-to-all-v", "rank 1", word)
                .satisfies(failures::add);
            trial.checkUntouched();
            rank.awaitAll();
          }
        });
    assertThat(failures).hasSize(2).anyMatch(InvalidUsage.class::isInstance);
  }

  @Test
  void shouldNameTheRankThatSendsMoreThanTheReceiverHasRoomFor() {
    onEachRank(
        2,
        (rank, collectives) -> {
          try (Counted trial =
              new Counted(rank.device(), rank.rank(), 2, 100, false, DataType.INT32)) {
            trial.upload(1);
            if (rank.rank() == 0) {
              // The offset is so large that the received elements do not fit.
              trial.writeReceiveOffset(1, trial.outputElements() - 1);
            } else {
              trial.write(50, 0);
            }
            rank.awaitAll();
            assertThatThrownBy(
                    () -> {
                      collectives.run(trial.call()).block(LONG);
                      collectives.barrier().block(LONG);
                    })
                .isInstanceOf(FluxCclException.class)
                .hasMessageContainingAll("all-to-all-v", "rank 1", "50 elements", "room");
            rank.awaitAll();
          }
        });
  }

  @Test
  void shouldRefuseInvalidShapesAndBuffers() {
    assertThatThrownBy(() -> new ExpertShape(1, 1, 1, 100, DataType.FLOAT8_E4M3, 1))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("128");
    assertThatThrownBy(() -> new ExpertShape(1, 1, 1, 128, DataType.FLOAT32, 1))
        .isInstanceOf(InvalidUsage.class);
    onEachRank(
        2,
        (rank, collectives) -> {
          ExpertShape uneven = new ExpertShape(4, 1, 3, 64, DataType.BFLOAT16, 8);
          assertThatThrownBy(() -> ExpertBatch.allocate(rank.device(), uneven, 2))
              .isInstanceOf(InvalidUsage.class);
          ExpertShape even = new ExpertShape(4, 1, 4, 64, DataType.BFLOAT16, 8);
          try (ExpertBatch batch = ExpertBatch.allocate(rank.device(), even, 2);
              DeviceBuffer small = rank.device().allocate(64);
              DeviceBuffer output = rank.device().allocate(8 * 128)) {
            assertThatThrownBy(
                    () -> collectives.dispatch(batch, small, null, output, null).block(LONG))
                .isInstanceOf(InvalidUsage.class)
                .hasMessageContaining("dispatch");
            assertThatThrownBy(() -> collectives.dispatch(batch, output, small, output, small))
                .isInstanceOf(InvalidUsage.class)
                .hasMessageContaining("scales");
          }
        });
  }

  @Test
  void shouldRefuseDispatchIfThereIsOnlyOneRank() {
    onEachRank(
        1,
        (rank, collectives) -> {
          ExpertShape shape = new ExpertShape(4, 1, 4, 64, DataType.BFLOAT16, 8);
          try (ExpertTrial trial = new ExpertTrial(rank.device(), shape, 0, 1)) {
            assertThatThrownBy(() -> collectives.run(trial.dispatch()).block(LONG))
                .isInstanceOf(InvalidUsage.class)
                .hasMessageContaining("within a host");
          }
        });
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

    Counted(Device device, int rank, int nRanks, int most, boolean packed, DataType type) {
      this.rank = rank;
      this.nRanks = nRanks;
      this.most = most;
      this.packed = packed;
      this.type = type;
      this.input = device.allocate(outputElements() * type.size());
      this.output = device.allocate(outputElements() * type.size());
      this.numbers = device.allocate(4L * nRanks * Long.BYTES);
    }

    long outputElements() {
      return (long) (most + GAP) * nRanks;
    }

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

    private long sendOffset(int from, int to) {
      return packed
          ? IntStream.range(0, to).map(peer -> count(from, peer)).sum()
          : (long) (nRanks - 1 - to) * (most + GAP) + 1;
    }

    private long receiveOffset(int from, int to) {
      return packed
          ? IntStream.range(0, from).map(peer -> count(peer, to)).sum()
          : (long) from * (most + GAP) + 2;
    }

    private byte[] content(int of) {
      byte[] bytes = new byte[(int) outputElements() * type.size()];
      new Random(seed * 13L + of).nextBytes(bytes);
      return bytes;
    }

    void upload(int newSeed) {
      seed = newSeed;
      input.upload(0, content(rank));
      output.upload(0, new byte[(int) output.size()]);
      ByteBuffer all =
          ByteBuffer.allocateDirect((int) numbers.size()).order(ByteOrder.LITTLE_ENDIAN);
      for (int peer = 0; peer < nRanks; peer++) {
        all.putLong(count(rank, peer));
      }
      for (int peer = 0; peer < nRanks; peer++) {
        all.putLong(sendOffset(rank, peer));
      }
      for (int peer = 0; peer < nRanks; peer++) {
        all.putLong(receiveOffset(peer, rank));
      }
      numbers.upload(0, all.clear());
    }

    void write(long count, long offset) {
      part(0).upload(0, number(count));
      part(1).upload(0, number(offset));
    }

    void writeReceiveOffset(int from, long offset) {
      part(2).upload((long) from * Long.BYTES, number(offset));
    }

    private static ByteBuffer number(long value) {
      return ByteBuffer.allocateDirect(Long.BYTES)
          .order(ByteOrder.LITTLE_ENDIAN)
          .putLong(value)
          .flip();
    }

    private static byte[] download(DeviceBuffer buffer) {
      ByteBuffer target =
          ByteBuffer.allocateDirect((int) buffer.size()).order(ByteOrder.LITTLE_ENDIAN);
      buffer.download(0, target);
      byte[] bytes = new byte[target.flip().remaining()];
      target.get(bytes);
      return bytes;
    }

    void check() {
      byte[] expected = new byte[(int) output.size()];
      long[] counts = new long[nRanks];
      for (int from = 0; from < nRanks; from++) {
        counts[from] = count(from, rank);
        System.arraycopy(
            content(from),
            (int) sendOffset(from, rank) * type.size(),
            expected,
            (int) receiveOffset(from, rank) * type.size(),
            count(from, rank) * type.size());
      }
      assertThat(Arrays.mismatch(download(output), expected))
          .as("first wrong byte on rank %d, call %d", rank, seed)
          .isEqualTo(-1);
      long[] received = new long[nRanks];
      ByteBuffer.wrap(download(part(3)))
          .order(ByteOrder.LITTLE_ENDIAN)
          .asLongBuffer()
          .get(received);
      assertThat(received).containsExactly(counts);
    }

    /** Checks that no row of rank 1 was written; rows of rank 0 itself may be. */
    void checkUntouched() {
      byte[] bytes = download(output);
      int begin = (int) receiveOffset(1, rank) * type.size();
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
