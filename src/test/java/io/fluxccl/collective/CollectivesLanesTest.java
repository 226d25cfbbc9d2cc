// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** The order and threads of operations on lanes, and their continuations. */
class CollectivesLanesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  @Test
  void shouldRunLanesIndependentlyOfEachOther() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives first = rank.collectives();
                Collectives second = first.lane("second").join()) {
              CompletableFuture<Void> held =
                  rank.rank() == 0
                      ? first.barrier().toFuture()
                      : CompletableFuture.completedFuture(null);
              for (int i = 0; i < Rounds.of(20, 100); i++) {
                ParkingStepVerifier.create(second.barrier(), LONG).expectComplete().verify(LONG);
              }
              if (rank.rank() == 0) {
                assertThat(held).isNotDone();
              }
              rank.awaitAll();
              if (rank.rank() == 1) {
                ParkingStepVerifier.create(first.barrier(), LONG).expectComplete().verify(LONG);
              }
              assertThat(held).succeedsWithin(LONG);
            }
          });
    }
  }

  @Test
  void shouldKeepCallsOfNestedLanesApart() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            CollectivesOptions checked = CollectivesOptions.DEFAULT.withChecks(true);
            try (Collectives first = Collectives.create(rank.communicator(), checked).join();
                Collectives a = first.lane("a").join();
                Collectives b = a.lane("b").join();
                Collectives c = first.lane("c").join();
                DeviceBuffer x = rank.device().allocate(64)) {
              List<CompletableFuture<Void>> runs = new ArrayList<>();
              for (int i = 0; i < 2; i++) {
                // Checks do not compare calls of different lanes.
                runs.add(
                    i == rank.rank()
                        ? b.allReduce(x, DataType.INT32, ReduceOp.SUM).toFuture()
                        : c.barrier().toFuture());
              }
              for (CompletableFuture<Void> run : runs) {
                assertThat(run).succeedsWithin(LONG);
              }
            }
          });
    }
  }

  @Test
  void shouldOrderCallsOfManyThreads() {
    int threads = 4;
    int callsPerThread = Rounds.of(40, 200);
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = rank.collectives();
                DeviceBuffer x = rank.device().allocate(4000)) {
              HostMemory.putInt(x.address(), 1);
              Mono<Void> doubled = collectives.allReduce(x, DataType.INT32, ReduceOp.MAX);
              Mono<Void> all =
                  Flux.range(0, threads)
                      .flatMap(
                          i ->
                              Flux.range(0, callsPerThread)
                                  .concatMap(j -> doubled)
                                  .subscribeOn(Schedulers.boundedElastic()))
                      .then();
              ParkingStepVerifier.create(all, LONG).expectComplete().verify(LONG);
              assertThat(HostMemory.getInt(x.address())).isEqualTo(1);
            }
          });
    }
  }

  @Test
  void shouldEnqueueNothingBeforeSubscription() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = rank.collectives();
                DeviceBuffer x = rank.device().allocate(64)) {
              HostMemory.putInt(x.address(), 1);
              Mono<Void> sum = collectives.allReduce(x, DataType.INT32, ReduceOp.SUM);
              if (rank.rank() == 0) {
                // If it were enqueued, it would be matched with the next call.
                collectives.allGather(x, x, 1, DataType.INT32);
              }
              for (int i = 0; i < 3; i++) {
                ParkingStepVerifier.create(sum, LONG).expectComplete().verify(LONG);
              }
              assertThat(HostMemory.getInt(x.address())).isEqualTo(8);
            }
          });
    }
  }

  @Test
  void shouldSignalOnTheConfiguredSchedulerWithTheSubscribersContext() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            CollectivesOptions options =
                CollectivesOptions.DEFAULT.withScheduler(Schedulers.parallel());
            try (Collectives collectives =
                Collectives.create(rank.communicator(), options).join()) {
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
          });
    }
  }
}
