// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.PipelineKernels.get;
import static io.fluxccl.collective.PipelineKernels.ints;
import static io.fluxccl.collective.PipelineKernels.scale;
import static io.fluxccl.testing.Outcomes.completes;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.ResourceLeaks;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Each rank cancels different operations; all later results must be correct. */
@Timeout(600)
class ManyCancelledRunsTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int RANKS = 4;
  private static final int COUNT = 64;
  private static final int CHUNK = 8;

  /** One rank and the expected values after the operations so far, equal on all ranks. */
  private static final class Ranked {
    private final LocalRank rank;
    private final Collectives collectives;
    private final DeviceBuffer x;
    private final CapturedPipeline captured;
    private final int[] expected = new int[COUNT];
    private final Random what = new Random(42); // equal on all ranks
    private final Random cancels;

    Ranked(LocalRank rank, Collectives collectives) {
      this.rank = rank;
      this.collectives = collectives;
      Arrays.setAll(expected, i -> i);
      this.x = ints(rank.device(), expected);
      this.captured = scale(collectives.pipeline(), x, 5, 1).allReduce(x, INT32, SUM).capture();
      this.cancels = new Random(rank.rank());
    }

    private void reduce(int from, int to, int factor, int summand) {
      for (int i = from; i < to; i++) {
        expected[i] = (expected[i] * factor + summand) * RANKS;
      }
    }

    private Publisher<?> next() {
      switch (what.nextInt(6)) {
        case 0:
          reduce(0, COUNT, 1, 0);
          return collectives.allReduce(x, INT32, SUM);
        case 1:
          reduce(0, COUNT, 3, 2);
          return scale(collectives.pipeline(), x, 3, 2).allReduce(x, INT32, SUM).run();
        case 2:
          reduce(0, COUNT, 5, 1);
          return captured.run();
        case 3:
          reduce(0, COUNT, 5, 1);
          reduce(0, COUNT, 5, 1);
          return captured.run(2);
        case 4:
          int chunks = 1 + what.nextInt(3);
          int prefetch = what.nextInt(3);
          reduce(0, (chunks + prefetch) * CHUNK, 1, 0);
          return collectives
              .chunked(CollectiveCall.allReduce(x, x, COUNT, INT32, SUM), CHUNK, prefetch)
              .take(chunks);
        default:
          return closedAtOnce();
      }
    }

    /** Reduces a buffer that is closed as soon as the run is enqueued. */
    private Mono<Void> closedAtOnce() {
      DeviceBuffer own = rank.device().allocate(1 << 17);
      return collectives
          .broadcast(own, 1 << 10, INT32, what.nextInt(RANKS))
          .doFinally(signal -> own.close());
    }

    /** Starts an operation, and cancels it at once, soon, or never. */
    private void start(Publisher<?> operation) {
      Flux<?> run = Flux.from(operation);
      switch (operation instanceof Mono ? cancels.nextInt(4) : 3) {
        case 0 -> run.subscribe().dispose();
        case 1 -> Schedulers.parallel().schedule(run.subscribe()::dispose, 1, MILLISECONDS);
        case 2 -> run.subscribe();
        default -> run.blockLast(LONG);
      }
    }

    void rounds(int rounds) {
      for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 4; i++) {
          start(next());
        }
        completes(collectives.pipeline().run());
        assertThat(get(x)).as("round %d", round).isEqualTo(expected);
      }
    }
  }

  @Test
  void shouldPreserveOrderAndResultsWithoutLeaksIfManyRunsAreCancelled() {
    int rounds = Rounds.of(100, 10_000) / 4;
    try (LocalRanks ranks = LocalRanks.of(RANKS)) {
      ranks.run(
          Duration.ofSeconds(500),
          rank -> {
            try (Collectives collectives = rank.collectives()) {
              Ranked ranked = new Ranked(rank, collectives);
              ranked.rounds(20); // creates the state that stays allocated
              rank.awaitAll();
              int before = ResourceLeaks.mappings().size();
              rank.awaitAll();
              ranked.rounds(rounds);
              assertThat(collectives.lane.watch.runs).isEmpty();
              rank.awaitAll();
              Awaitility.await()
                  .untilAsserted(
                      () ->
                          assertThat(ResourceLeaks.mappings())
                              .hasSizeLessThanOrEqualTo(before + 2));
              assertThat(rank.communicator().failure()).isNull();
              rank.awaitAll();
            }
          });
    }
  }
}
