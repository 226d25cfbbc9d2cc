// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.DataType.FLOAT16;
import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Flux;

/** Reductions of all kinds that follow each other, and reductions that a peer aborts. */
@EmulatedGpus
@OnRanks(value = OnRanks.FIRST_ARGUMENT, seconds = 300)
class ReduceSequencesEmulatedTest {
  private static final Duration LONG = Duration.ofSeconds(300);

  /** The element counts change algorithms and grids between calls. */
  @ParameterizedTest
  @ValueSource(ints = {2, 5})
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
    Flux.merge(runs.stream().map(run -> collectives.run(run.call)).toList()).then().block(LONG);
    runs.forEach(RandomCollectiveCase.Run::verify);
  }

  @ParameterizedTest(name = "{1} on {0} ranks")
  @CsvSource({
    "2, one-shot-ll8",
    "3, one-shot-ll8",
    "2, one-shot-ll128",
    "2, one-shot-sentinel",
    "3, one-shot-sentinel",
    "2, two-shots-ll128",
    "3, two-shots-ll128",
    "2, two-shots-sentinel",
    "3, two-shots-sentinel",
    "3, two-shots-bulk",
    "3, staggered-direct",
    "3, staggered-staged",
    "3, copy-engines-reduce"
  })
  void shouldFailWaitingRanksIfAPeerAborts(int nRanks, String algorithm, LocalRank rank) {
    int count = algorithm.startsWith("one-shot") ? 500 : 20_000;
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTimeout(LONG)
            .withAlgorithm(Collective.ALL_REDUCE, algorithm);
    Collectives collectives = lane(rank, options);
    DeviceBuffer buffer = rank.device().allocate(40_000);
    Registration registered = collectives.register(buffer).join();
    CollectiveCall call = CollectiveCall.allReduce(buffer, buffer, count, FLOAT16, SUM);
    assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
    if (rank.rank() == nRanks - 1) {
      rank.awaitAll();
      rank.communicator().abort(new Aborted(nRanks - 1, "the last rank gives up"));
    } else {
      CompletableFuture<Void> run = collectives.run(call).toFuture();
      rank.awaitAll();
      fails(run, Aborted.class);
    }
    registered.close();
  }
}
