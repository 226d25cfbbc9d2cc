// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Consecutive reductions on one state, and their failures. */
@EmulatedGpus
class ReduceSequencesEmulatedTest {
  private static final Duration LONG = Duration.ofSeconds(300);
  private static final int CALLS = Rounds.of(25, 60);
  private static final int MOST = 60_000;

  /** Element counts of consecutive calls, so that algorithms and grids change between calls. */
  private static List<Integer> counts() {
    SplittableRandom random = new SplittableRandom(4);
    List<Integer> counts = new ArrayList<>();
    for (int i = 0; i < CALLS; i++) {
      counts.add(1 + random.nextInt(1 << random.nextInt(4, 16)));
    }
    return counts;
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 5})
  void shouldKeepResultsApartWhenAllSizesAndKindsFollowEachOther(int nRanks) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      List<ByteBuffer> given = ReduceTestData.inputs(DataType.FLOAT32, nRanks, 1, MOST * nRanks);
      ranks.run(LONG, rank -> followEachOther(rank, given));
    }
  }

  private static void followEachOther(LocalRank rank, List<ByteBuffer> given) {
    int me = rank.rank();
    int n = given.size();
    List<Integer> counts = counts();
    List<Mono<Void>> runs = new ArrayList<>();
    List<DeviceBuffer> outputs = new ArrayList<>();
    try (Collectives collectives = Collectives.create(rank.communicator()).join();
        DeviceBuffer inputs = rank.device().allocate(MOST * 4L * n);
        DeviceBuffer results = rank.device().allocate(MOST * 4L * CALLS)) {
      ReduceTestData.upload(inputs, 0, given.get(me), MOST * 4 * n);
      Registration registered = collectives.register(results).join();
      for (int i = 0; i < CALLS; i++) {
        int count = counts.get(i);
        DeviceBuffer output = ((CudaBuffer) results).slice(MOST * 4L * i, count * 4L);
        outputs.add(output);
        runs.add(collectives.run(call(i, n, count, inputs, output)));
      }
      // All of them are enqueued before the first is done.
      Flux.merge(runs).then().block(LONG);
      for (int i = 0; i < CALLS; i++) {
        int count = counts.get(i);
        boolean scatter = i % 3 == 1;
        if (i % 3 < 2 || i % n == me) {
          ByteBuffer expected =
              ReduceTestData.reduced(
                  DataType.FLOAT32, ReduceOp.SUM, given, scatter ? count * n : count);
          ByteBuffer actual = ReduceTestData.download(outputs.get(i), 0, count * 4);
          assertThat(
                  ReduceTestData.mismatch(
                      DataType.FLOAT32, expected, scatter ? me * count : 0, actual, count))
              .as("first wrong element of call %d on rank %d", i, me)
              .isEqualTo(-1);
        }
      }
      registered.close();
    }
  }

  private static CollectiveCall call(int i, int n, int count, DeviceBuffer in, DeviceBuffer out) {
    return switch (i % 3) {
      case 0 -> CollectiveCall.allReduce(in, out, count, DataType.FLOAT32, ReduceOp.SUM);
      case 1 -> CollectiveCall.reduceScatter(in, out, count, DataType.FLOAT32, ReduceOp.SUM);
      default -> CollectiveCall.reduce(in, out, count, DataType.FLOAT32, ReduceOp.SUM, i % n);
    };
  }

  @ParameterizedTest(name = "{0} on {1} ranks")
  @CsvSource({
    "one-shot-ll8, 2",
    "one-shot-ll8, 3",
    "one-shot-ll128, 2",
    "one-shot-sentinel, 2",
    "one-shot-sentinel, 3",
    "two-shots-ll128, 2",
    "two-shots-ll128, 3",
    "two-shots-sentinel, 2",
    "two-shots-sentinel, 3",
    "two-shots-bulk, 3",
    "staggered-direct, 3",
    "staggered-staged, 3",
    "copy-engines-reduce, 3"
  })
  void shouldFailWaitingRanksIfAPeerAborts(String algorithm, int nRanks)
      throws InterruptedException {
    int count = algorithm.startsWith("one-shot") ? 500 : 20_000;
    int last = nRanks - 1;
    CountDownLatch waiting = new CountDownLatch(last);
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            CollectivesOptions options =
                CollectivesOptions.DEFAULT
                    .withTimeout(LONG)
                    .withAlgorithm(io.fluxccl.collective.Collective.ALL_REDUCE, algorithm);
            try (Collectives collectives = Collectives.create(rank.communicator(), options).join();
                DeviceBuffer buffer = rank.device().allocate(40_000)) {
              Registration registered = collectives.register(buffer).join();
              CollectiveCall call =
                  CollectiveCall.allReduce(buffer, buffer, count, DataType.FLOAT16, ReduceOp.SUM);
              assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
              if (rank.rank() == last) {
                assertThat(waiting.await(60, TimeUnit.SECONDS)).isTrue();
                rank.communicator().abort(new Aborted(last, "the last rank gives up"));
              } else {
                var run = collectives.run(call).toFuture();
                waiting.countDown();
                assertThatThrownBy(run::join).hasRootCauseInstanceOf(Aborted.class);
              }
              registered.close();
            }
          });
    }
  }

  @Test
  void shouldReserveMemoryForTheLargestRegisteredBuffer() {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = Collectives.create(rank.communicator()).join();
                DeviceBuffer small = rank.device().allocate(1000);
                DeviceBuffer large = rank.device().allocate(4 << 20)) {
              CollectiveCall call =
                  CollectiveCall.allReduce(large, large, 1 << 20, DataType.INT32, ReduceOp.MAX);
              collectives.register(small).join();
              assertThat(collectives.algorithmFor(call)).isEqualTo("staggered-staged");
              collectives.register(large).join();
              assertThat(collectives.algorithmFor(call)).isEqualTo("staggered-direct");
              collectives.run(call).block(LONG);
            }
          });
    }
  }
}
