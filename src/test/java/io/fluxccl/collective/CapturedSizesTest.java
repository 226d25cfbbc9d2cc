// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;

/** Pipelines captured for several sizes. Two ranks. */
@OnRanks
class CapturedSizesTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int[] SIZES = {64, 1, 8, 8};

  private static Pipeline sum(Collectives collectives, IntView x, int size) {
    return collectives.pipeline().allReduce(x.slice(0, size), ReduceOp.SUM);
  }

  private static CapturedSizes sizes(Collectives collectives, IntView x, Collection<Integer> made) {
    return CapturedSizes.of(
        SIZES,
        size -> {
          made.add(size);
          return sum(collectives, x, size);
        });
  }

  @Test
  void shouldRunTheSmallestSizeThatIsLargeEnough(LocalRank rank, Collectives collectives) {
    IntView x = rank.device().allocateInts(64);
    List<Integer> made = new ArrayList<>();
    try (CapturedSizes sizes = sizes(collectives, x, made)) {
      // Ranks may capture different sizes.
      if (rank.rank() == 1) {
        sizes.captureAll();
        assertThat(made).containsExactly(1, 8, 64);
      }
      for (int n : new int[] {5, 0, 64, 8, 9}) {
        int[] ones = new int[64];
        java.util.Arrays.fill(ones, 1);
        x.put(ones);
        sizes.atLeast(n).run().block(LONG);
        int size = sizes.sizeFor(n);
        assertThat(size).isEqualTo(n <= 1 ? 1 : n <= 8 ? 8 : 64);
        assertThat(x.slice(0, size).toArray()).containsOnly(2);
        assertThat(x.slice(size, 64 - size).toArray()).doesNotContain(2);
      }
      assertThat(made).containsExactlyInAnyOrder(1, 8, 64);
    }
  }

  @Test
  void shouldListTheSizesIfNoneIsLargeEnough(LocalRank rank, Collectives collectives) {
    IntView x = rank.device().allocateInts(64);
    CapturedSizes sizes = sizes(collectives, x, new ArrayList<>());
    refuses(() -> sizes.atLeast(65), "n=65", "[1, 8, 64]");
    refuses(() -> sizes.sizeFor(-1));
    refuses(() -> CapturedSizes.of(new int[0], size -> null));
    refuses(() -> CapturedSizes.of(new int[] {4, 0}, size -> null), "[4, 0]");
    refuses(() -> CapturedSizes.of(null, size -> null), "sizes=null");
  }

  @Test
  void shouldCloseAllTogether(LocalRank rank, Collectives collectives) {
    IntView x = rank.device().allocateInts(64);
    CapturedSizes sizes = sizes(collectives, x, new ArrayList<>());
    CapturedPipeline one = sizes.atLeast(1);
    CapturedPipeline all = sizes.atLeast(64);
    all.run().block(LONG);
    sizes.close();
    sizes.close();
    for (CapturedPipeline closed : List.of(one, all)) {
      StepVerifier.create(closed.run()).expectError(InvalidUsage.class).verify(LONG);
    }
    refuses(() -> sizes.atLeast(64), "closed");
    refuses(() -> sizes.atLeast(8));
  }

  @Test
  void shouldTryAgainAfterAFailure(LocalRank rank, Collectives collectives) {
    IntView x = rank.device().allocateInts(64);
    List<Integer> tries = new ArrayList<>();
    try (CapturedSizes sizes =
        CapturedSizes.of(
            SIZES,
            size -> {
              tries.add(size);
              return tries.size() == 1 ? null : sum(collectives, x, size);
            })) {
      refuses(() -> sizes.atLeast(8), "pipeline=null");
      sizes.atLeast(8).run().block(LONG);
      assertThat(tries).containsExactly(8, 8);
    }
  }

  @Test
  void shouldCaptureASizeOnceForManyThreads(LocalRank rank, Collectives collectives) {
    IntView x = rank.device().allocateInts(64);
    ConcurrentLinkedQueue<Integer> made = new ConcurrentLinkedQueue<>();
    CyclicBarrier start = new CyclicBarrier(4);
    try (CapturedSizes sizes = sizes(collectives, x, made)) {
      Mono<CapturedPipeline> finds =
          Mono.fromCallable(
              () -> {
                start.await(60, TimeUnit.SECONDS);
                return sizes.atLeast(7);
              });
      List<CapturedPipeline> found =
          Flux.range(0, 4)
              .flatMap(i -> finds.subscribeOn(Schedulers.boundedElastic()))
              .collectList()
              .block(LONG);
      assertThat(found).hasSize(4).containsOnly(sizes.atLeast(8));
      assertThat(made).containsExactly(8);
    }
  }
}
