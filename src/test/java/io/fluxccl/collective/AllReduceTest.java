package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.test.StepVerifier;

class AllReduceTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int[] COUNTS = {1, 3, 17, 1023, 2048, 2049, 65_537};

  private static AllReduceOptions options(String transport) {
    return transport.equals("auto")
        ? AllReduceOptions.DEFAULT
        : AllReduceOptions.DEFAULT.withTransport(Transport.valueOf(transport));
  }

  @ParameterizedTest
  @CsvSource({
    "1,1,auto",
    "1,2,auto",
    "1,3,auto",
    "1,4,auto",
    "1,3,ETHERNET",
    "2,1,auto",
    "2,2,auto",
    "3,2,auto"
  })
  void shouldSumIntegersOfAnyCount(int hosts, int ranksPerHost, String transport) {
    try (LocalRanks ranks = LocalRanks.ofHosts(hosts, ranksPerHost)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(65_537 * 4L);
            try (AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer, options(transport))
                    .join()) {
              assertThat(allReduce.algorithm())
                  .isEqualTo(hosts > 1 || transport.equals("ETHERNET") ? "all-pairs" : "direct");
              for (int round = 0; round < 3; round++) {
                for (int count : COUNTS) {
                  fill(buffer, rank.rank(), count, round);
                  StepVerifier.create(allReduce.run(count, DataType.INT32, ReduceOp.SUM))
                      .expectComplete()
                      .verify(LONG);
                  check(buffer, rank.nRanks(), count, round);
                }
              }
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
            }
          });
    }
  }

  private static void fill(DeviceBuffer buffer, int rank, int count, int round) {
    for (int i = 0; i < count; i++) {
      HostMemory.putInt(buffer.address() + i * 4L, value(rank, i, round));
    }
    if (count < 65_537) {
      HostMemory.putInt(buffer.address() + count * 4L, -12345);
    }
  }

  private static int value(int rank, int i, int round) {
    return (i * 31 + round) * (rank + 1);
  }

  private static void check(DeviceBuffer buffer, int nRanks, int count, int round) {
    int factor = nRanks * (nRanks + 1) / 2;
    for (int i = 0; i < count; i++) {
      int actual = HostMemory.getInt(buffer.address() + i * 4L);
      if (actual != (i * 31 + round) * factor) {
        assertThat(actual).as("index %d of %d", i, count).isEqualTo((i * 31 + round) * factor);
      }
    }
    if (count < 65_537) {
      assertThat(HostMemory.getInt(buffer.address() + count * 4L))
          .as("behind the end")
          .isEqualTo(-12345);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3})
  void shouldWorkWithSeveralKernelThreads(int threads) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(65_537 * 4L);
            try (AllReduce allReduce =
                AllReduce.prepare(
                        rank.communicator(),
                        rank.stream(),
                        buffer,
                        AllReduceOptions.DEFAULT.withThreads(threads))
                    .join()) {
              for (int count : COUNTS) {
                fill(buffer, rank.rank(), count, 0);
                allReduce
                    .enqueue(count, DataType.INT32, ReduceOp.SUM)
                    .completion()
                    .get(30, TimeUnit.SECONDS);
                check(buffer, 2, count, 0);
              }
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
            }
          });
    }
  }

  @Test
  void shouldRunManyEnqueuedAtOnceInOrder() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(64 * 1024);
            try (AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer).join()) {
              int[] counts = {1, 16_000, 500, 3};
              HostMemory.putInt(buffer.address(), 1);
              for (int i = 0; i < 4 * 3; i++) {
                allReduce.enqueue(counts[i % 4], DataType.INT32, ReduceOp.SUM);
              }
              allReduce.completion().get(30, TimeUnit.SECONDS);
              // Twelve times three equal values: 3^12.
              assertThat(HostMemory.getInt(buffer.address())).isEqualTo(531_441);
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
            }
          });
    }
  }

  @Test
  void shouldDoNothingForCountZeroAndRefuseWhatDoesNotFit() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(64);
            try (AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer).join()) {
              allReduce.run(0, DataType.FLOAT16, ReduceOp.MAX).block(LONG);
              StepVerifier.create(allReduce.run(17, DataType.INT32, ReduceOp.SUM))
                  .expectErrorSatisfies(
                      e ->
                          assertThat(e).isInstanceOf(InvalidUsage.class).hasMessageContaining("16"))
                  .verify(LONG);
              assertThatThrownBy(() -> allReduce.enqueue(-1, DataType.INT8, ReduceOp.SUM))
                  .isInstanceOf(InvalidUsage.class);
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
            }
          });
    }
  }

  @Test
  void shouldBeColdAndRunOnceForEachSubscription() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(64);
            try (AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer).join()) {
              HostMemory.putInt(buffer.address(), 1);
              reactor.core.publisher.Mono<Void> run =
                  allReduce.run(1, DataType.INT32, ReduceOp.SUM);
              assertThat(HostMemory.getInt(buffer.address())).isEqualTo(1);
              run.block(LONG);
              run.block(LONG);
              assertThat(HostMemory.getInt(buffer.address())).isEqualTo(4);
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "ETHERNET"})
  void shouldTimeOutOnEveryRankWhenOneDoesNotTakePart(String transport) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(1 << 20);
            AllReduceOptions options = options(transport).withTimeout(Duration.ofSeconds(2));
            try (AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer, options).join()) {
              if (rank.rank() == 2) {
                assertThat(rank.communicator().failed().get(10, TimeUnit.SECONDS))
                    .isInstanceOf(Timeout.class);
              } else {
                long start = System.nanoTime();
                StepVerifier.create(allReduce.run(1 << 18, DataType.FLOAT32, ReduceOp.SUM))
                    .expectErrorSatisfies(
                        e ->
                            assertThat(e)
                                .isInstanceOf(Timeout.class)
                                .satisfies(t -> assertThat(((Timeout) t).rank()).isEqualTo(2)))
                    .verify(LONG);
                assertThat(Duration.ofNanos(System.nanoTime() - start))
                    .isBetween(Duration.ofMillis(1500), Duration.ofSeconds(4));
              }
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "ETHERNET"})
  void shouldEndOnEveryRankWhenOneCancels(String transport) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(1 << 20);
            try (AllReduce allReduce =
                AllReduce.prepare(rank.communicator(), rank.stream(), buffer, options(transport))
                    .join()) {
              if (rank.rank() == 0) {
                StepVerifier.create(allReduce.run(1 << 18, DataType.FLOAT32, ReduceOp.SUM))
                    .thenAwait(Duration.ofMillis(100))
                    .thenCancel()
                    .verify(LONG);
              } else if (rank.rank() == 1) {
                StepVerifier.create(allReduce.run(1 << 18, DataType.FLOAT32, ReduceOp.SUM))
                    .expectErrorSatisfies(AllReduceTest::wasCancelledByRankZero)
                    .verify(LONG);
              }
              wasCancelledByRankZero(rank.communicator().failed().get(10, TimeUnit.SECONDS));
            }
          });
    }
  }

  private static void wasCancelledByRankZero(Throwable e) {
    assertThat(e).isInstanceOf(Aborted.class).hasMessageContaining("cancelled by rank 0");
    assertThat(((Aborted) e).rank()).isZero();
  }

  @Test
  void shouldEndWithTheReasonWhenARankIsReportedDead() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      LocalRank other = ranks.ranks().get(1);
      CompletableFuture<AllReduce> theirs =
          AllReduce.prepare(other.communicator(), other.stream(), other.device().allocate(1 << 20));
      LocalRank rank = ranks.ranks().get(0);
      AllReduce allReduce =
          AllReduce.prepare(rank.communicator(), rank.stream(), rank.device().allocate(1 << 20))
              .join();
      StepVerifier.create(allReduce.run(1 << 18, DataType.FLOAT32, ReduceOp.SUM))
          .then(() -> other.bootstrap().abort(new RemoteFailure(1, "rank 1 is dead")))
          .expectErrorSatisfies(
              e -> {
                assertThat(e).isInstanceOf(RemoteFailure.class);
                assertThat(((RemoteFailure) e).rank()).isEqualTo(1);
              })
          .verify(LONG);
      theirs.join().close();
      allReduce.close();
    }
  }
}
