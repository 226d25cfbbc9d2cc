package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.reactivestreams.Subscription;
import reactor.core.Disposable;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

class CheckedCollectivesTest {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final CollectivesOptions CHECKED = CollectivesOptions.DEFAULT.withChecks(true);

  private static Collectives checked(LocalRank rank) {
    return Collectives.create(rank.communicator(), CHECKED).join();
  }

  private static void verify(Mono<Void> run) {
    StepVerifier.create(run).expectComplete().verify(LONG);
  }

  /** What each rank calls is refused on all of them, and then they go on together. */
  private static void shouldRefuse(
      BiFunction<LocalRank, Collectives, Mono<Void>> call, String... messages) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              StepVerifier.create(call.apply(rank, collectives))
                  .expectErrorSatisfies(
                      e ->
                          assertThat(e)
                              .isInstanceOf(InvalidUsage.class)
                              .hasMessageContainingAll(messages))
                  .verify(LONG);
              assertThat(rank.communicator().failure()).isNull();
              verify(collectives.barrier());
            }
          });
    }
  }

  @Test
  void shouldRefuseDifferentOperationsOnAllRanks() {
    shouldRefuse(
        (rank, collectives) -> {
          DeviceBuffer x = rank.device().allocate(64);
          return rank.rank() == 1
              ? collectives.broadcast(x, 4, DataType.INT32, 0)
              : collectives.allReduce(x, DataType.INT32, ReduceOp.SUM);
        },
        "broadcast root=0 count=4 type=INT32",
        "all-reduce count=16 type=INT32 op=SUM",
        "rank 1");
  }

  @Test
  void shouldRefuseDifferentCountsOnAllRanks() {
    shouldRefuse(
        (rank, collectives) ->
            collectives.allReduce(
                rank.device().allocate(64 + 4L * rank.rank()), DataType.INT32, ReduceOp.SUM),
        "count=16",
        "operation 1");
  }

  @Test
  void shouldRefuseARegistrationThatOneRankDoesNotUse() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer known = rank.device().allocate(64);
              DeviceBuffer unknown = rank.device().allocate(64);
              collectives.register(known).join();
              StepVerifier.create(
                      collectives.allReduce(
                          rank.rank() == 0 ? known : unknown, DataType.INT32, ReduceOp.SUM))
                  .expectErrorMatches(
                      e -> e instanceof InvalidUsage && e.getMessage().contains("registration 0"))
                  .verify(LONG);
              verify(collectives.allReduce(known, DataType.INT32, ReduceOp.SUM));
            }
          });
    }
  }

  @Test
  void shouldRefuseAPartThatThePeerDoesNotExpect() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer in = rank.device().allocate(64);
              DeviceBuffer out = rank.device().allocate(64);
              long[] sends = {1, 2};
              long[] receives = rank.rank() == 0 ? new long[] {1, 3} : new long[] {2, 2};
              StepVerifier.create(collectives.allToAllv(in, sends, out, receives, DataType.INT32))
                  .expectErrorMatches(
                      e -> e instanceof InvalidUsage && e.getMessage().contains("bytes"))
                  .verify(LONG);
              verify(collectives.barrier());
            }
          });
    }
  }

  @Test
  void shouldCompareSendsWithReceivesOfTheirPeersOnly() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer x = rank.device().allocate(64);
              if (rank.rank() == 0) {
                verify(collectives.send(x, 5, DataType.INT32, 2));
                StepVerifier.create(collectives.send(x, 6, DataType.INT32, 2))
                    .expectError(InvalidUsage.class)
                    .verify(LONG);
              } else if (rank.rank() == 2) {
                verify(collectives.recv(x, 5, DataType.INT32, 0));
                StepVerifier.create(collectives.recv(x, 7, DataType.INT32, 0))
                    .expectError(InvalidUsage.class)
                    .verify(LONG);
              }
              verify(collectives.barrier());
            }
          });
    }
  }

  @Test
  void shouldNameTheRankThatCallsNothing() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      CompletableFuture<Void> tried = new CompletableFuture<>();
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives =
                Collectives.create(
                        rank.communicator(),
                        CHECKED.withTimeout(Duration.ofSeconds(2)).withSetupTimeout(LONG))
                    .join();
            rank.meet();
            if (rank.rank() == 0) {
              assertThatThrownBy(() -> collectives.barrier().block(LONG))
                  .isInstanceOf(Timeout.class)
                  .hasMessageContaining("barrier")
                  .hasMessageContaining("rank 1");
              tried.complete(null);
            }
            tried.join();
            assertThat(rank.communicator().failed()).succeedsWithin(LONG);
          });
    }
  }

  @Test
  void shouldWithdrawWhatIsCancelledBeforeItsTurn() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer x = rank.device().allocate(64);
              CompletableFuture<Void> first =
                  rank.rank() == 0
                      ? collectives.barrier().toFuture()
                      : CompletableFuture.completedFuture(null);
              // Behind the barrier, to which rank 1 has not come yet.
              Disposable second =
                  rank.rank() == 0
                      ? collectives.allReduce(x, DataType.INT32, ReduceOp.SUM).subscribe()
                      : () -> {};
              second.dispose();
              rank.meet();
              if (rank.rank() == 1) {
                verify(collectives.barrier());
              }
              first.join();
              verify(collectives.allReduce(x, DataType.INT32, ReduceOp.MAX));
              assertThat(rank.communicator().failure()).isNull();
            }
          });
    }
  }

  @Test
  void shouldAbortWhenChunksAreCancelledOfWhichTheFirstIsBeingCompared() {
    shouldAbortAfter(Subscription::cancel);
  }

  @Test
  void shouldAbortWhenDemandIsWrongWhileTheFirstChunkIsBeingCompared() {
    shouldAbortAfter(subscription -> subscription.request(0));
  }

  /** Rank 1 comes when rank 0 has given up one chunk that waits for it and one behind that. */
  private static void shouldAbortAfter(Consumer<Subscription> givingUp) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer x = rank.device().allocate(64);
              HostMemory.fill(x.address(), 64, (byte) 1);
              Flux<Chunk> chunks =
                  collectives.chunked(
                      CollectiveCall.allReduce(x, x, 16, DataType.INT32, ReduceOp.SUM), 4, 0);
              rank.meet(); // else the abort may come while rank 1 opens its own
              if (rank.rank() == 0) {
                chunks.subscribe(
                    new BaseSubscriber<>() {
                      @Override
                      protected void hookOnSubscribe(Subscription subscription) {
                        subscription.request(2);
                        givingUp.accept(subscription);
                      }

                      @Override
                      protected void hookOnError(Throwable failure) {}
                    });
                assertThat(rank.communicator().failure())
                    .isInstanceOf(Aborted.class)
                    .hasMessageContaining("chunk 0 of all-reduce")
                    .hasMessageContaining("cancelled by rank 0");
              }
              rank.meet();
              if (rank.rank() == 1) {
                StepVerifier.create(chunks).expectError(Aborted.class).verify(LONG);
              }
              rank.meet();
              for (int i = 0; i < 16; i++) {
                assertThat(HostMemory.getInt(x.address() + 4L * i)).isEqualTo(0x01010101);
              }
            }
          });
    }
  }

  @Test
  void shouldGoOnBehindManyThatWereWithdrawnBeforeTheirTurn() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              if (rank.rank() == 1) {
                rank.meet();
                verify(collectives.barrier());
                verify(collectives.barrier());
                return;
              }
              CompletableFuture<Void> first = collectives.barrier().toFuture();
              Mono<Void> withdrawn = collectives.barrier();
              List<CompletableFuture<Void>> others = new ArrayList<>();
              for (int i = 0; i < 50_000; i++) {
                others.add(withdrawn.toFuture());
              }
              CompletableFuture<Void> last = collectives.barrier().toFuture();
              others.forEach(other -> other.cancel(false));
              rank.meet();
              assertThat(first).succeedsWithin(LONG);
              assertThat(last).succeedsWithin(LONG);
            }
          });
    }
  }

  @Test
  void shouldFailAllThatWaitWhenTheCommunicatorDoes() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              rank.meet();
              if (rank.rank() == 0) {
                Mono<Void> barrier = collectives.barrier();
                List<CompletableFuture<Void>> waiting = new ArrayList<>();
                for (int i = 0; i < 50_000; i++) {
                  waiting.add(barrier.toFuture());
                }
                rank.communicator().abort(new Aborted(0, "in a test"));
                for (CompletableFuture<Void> each : waiting) {
                  assertThat(each).failsWithin(LONG);
                }
              }
              rank.meet();
            }
          });
    }
  }
}
