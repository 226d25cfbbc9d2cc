// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** The order and threads of operations on lanes, and their continuations. */
@OnRanks(seconds = 120)
class CollectivesLanesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  @Test
  void shouldKeepCallsOfNestedLanesApart(LocalRank rank) {
    CollectivesOptions checked = CollectivesOptions.DEFAULT.withChecks(true);
    try (Collectives first = lane(rank, checked);
        Collectives a = first.lane("a").join();
        Collectives b = a.lane("b").join();
        Collectives c = first.lane("c").join();
        DeviceBuffer x = rank.device().allocate(64)) {
      List<CompletableFuture<Void>> runs = new ArrayList<>();
      for (int i = 0; i < 2; i++) {
        // Checks do not compare calls of different lanes.
        runs.add(i == rank.rank() ? b.allReduce(x, INT32, SUM).toFuture() : c.barrier().toFuture());
      }
      for (CompletableFuture<Void> run : runs) {
        assertThat(run).succeedsWithin(LONG);
      }
    }
  }

  @Test
  void shouldEnqueueNothingBeforeSubscription(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(64);
    HostMemory.putInt(x.address(), 1);
    Mono<Void> sum = collectives.allReduce(x, INT32, SUM);
    if (rank.rank() == 0) {
      // If it were enqueued, it would be matched with the next call.
      collectives.allGather(x, x, 1, INT32);
    }
    for (int i = 0; i < 3; i++) {
      completes(sum);
    }
    assertThat(HostMemory.getInt(x.address())).isEqualTo(8);
  }

  @Test
  void shouldSignalOnTheConfiguredSchedulerWithTheSubscribersContext(LocalRank rank) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withScheduler(Schedulers.parallel());
    try (Collectives collectives = lane(rank, options)) {
      AtomicReference<String> thread = new AtomicReference<>();
      List<String> values = new ArrayList<>();
      Mono<String> run =
          collectives
              .barrier()
              .then(
                  Mono.deferContextual(
                      context -> {
                        thread.set(Thread.currentThread().getName());
                        return Mono.just(context.<String>get("request"));
                      }))
              .contextWrite(context -> context.put("request", "42"));
      ParkingStepVerifier.create(run, LONG)
          .recordWith(() -> values)
          .expectNext("42")
          .expectComplete()
          .verify(LONG);
      assertThat(thread.get()).startsWith("parallel-");
    }
  }
}
