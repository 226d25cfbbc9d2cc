// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.test.StepVerifier;

/** Pipelines captured for several sizes. Two ranks. */
@Timeout(120)
class CapturedSizesTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int[] SIZES = {64, 1, 8, 8};

  interface Body {
    void run(int rank, IntView x, Collectives collectives) throws Exception;
  }

  private static void onEachRank(Body body) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (Collectives collectives = rank.collectives();
                IntView x = rank.device().allocateInts(64)) {
              body.run(rank.rank(), x, collectives);
            }
          });
    }
  }

  private static Pipeline sum(Collectives collectives, IntView x, int size) {
    return collectives.pipeline().allReduce(x.slice(0, size), ReduceOp.SUM);
  }

  @Test
  void shouldRunTheSmallestSizeThatIsLargeEnough() {
    onEachRank(
        (rank, x, collectives) -> {
          List<Integer> made = new ArrayList<>();
          try (CapturedSizes sizes =
              CapturedSizes.of(
                  SIZES,
                  size -> {
                    made.add(size);
                    return sum(collectives, x, size);
                  })) {
            // Ranks may capture different sizes.
            if (rank == 1) {
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
        });
  }

  @Test
  void shouldListTheSizesIfNoneIsLargeEnough() {
    onEachRank(
        (rank, x, collectives) -> {
          try (CapturedSizes sizes = CapturedSizes.of(SIZES, n -> sum(collectives, x, n))) {
            assertThatThrownBy(() -> sizes.atLeast(65))
                .isInstanceOf(InvalidUsage.class)
                .hasMessageContaining("n=65")
                .hasMessageContaining("[1, 8, 64]");
            assertThatThrownBy(() -> sizes.sizeFor(-1)).isInstanceOf(InvalidUsage.class);
          }
        });
    assertThatThrownBy(() -> CapturedSizes.of(new int[0], size -> null))
        .isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> CapturedSizes.of(new int[] {4, 0}, size -> null))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("[4, 0]");
    assertThatThrownBy(() -> CapturedSizes.of(null, size -> null))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("sizes=null");
  }

  @Test
  void shouldCloseAllTogether() {
    onEachRank(
        (rank, x, collectives) -> {
          CapturedSizes sizes = CapturedSizes.of(SIZES, n -> sum(collectives, x, n));
          CapturedPipeline one = sizes.atLeast(1);
          CapturedPipeline all = sizes.atLeast(64);
          all.run().block(LONG);
          sizes.close();
          sizes.close();
          for (CapturedPipeline closed : List.of(one, all)) {
            StepVerifier.create(closed.run()).expectError(InvalidUsage.class).verify(LONG);
          }
          assertThatThrownBy(() -> sizes.atLeast(64))
              .isInstanceOf(InvalidUsage.class)
              .hasMessageContaining("closed");
          assertThatThrownBy(() -> sizes.atLeast(8)).isInstanceOf(InvalidUsage.class);
        });
  }

  @Test
  void shouldTryAgainAfterAFailure() {
    onEachRank(
        (rank, x, collectives) -> {
          List<Integer> tries = new ArrayList<>();
          try (CapturedSizes sizes =
              CapturedSizes.of(
                  SIZES,
                  size -> {
                    tries.add(size);
                    return tries.size() == 1 ? null : sum(collectives, x, size);
                  })) {
            assertThatThrownBy(() -> sizes.atLeast(8))
                .isInstanceOf(InvalidUsage.class)
                .hasMessageContaining("pipeline=null");
            sizes.atLeast(8).run().block(LONG);
            assertThat(tries).containsExactly(8, 8);
          }
        });
  }

  @Test
  void shouldCaptureASizeOnceForManyThreads() {
    onEachRank(
        (rank, x, collectives) -> {
          ConcurrentLinkedQueue<Integer> made = new ConcurrentLinkedQueue<>();
          CyclicBarrier start = new CyclicBarrier(4);
          ExecutorService threads = Executors.newFixedThreadPool(4);
          try (CapturedSizes sizes =
              CapturedSizes.of(
                  SIZES,
                  size -> {
                    made.add(size);
                    return sum(collectives, x, size);
                  })) {
            List<Future<CapturedPipeline>> found = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
              found.add(
                  threads.submit(
                      () -> {
                        start.await(60, TimeUnit.SECONDS);
                        return sizes.atLeast(7);
                      }));
            }
            for (Future<CapturedPipeline> each : found) {
              assertThat(each.get(60, TimeUnit.SECONDS)).isSameAs(sizes.atLeast(8));
            }
            assertThat(made).containsExactly(8);
          } finally {
            threads.shutdownNow();
          }
        });
  }
}
