// SPDX-License-Identifier: Apache-2.0
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
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
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
  private static final CollectivesOptions ABORT_ON_CANCEL = CHECKED.withAbortOnCancel(true);

  /** A call of a rank on buffers of 64, 128 and 128 bytes; the last is not registered. */
  private interface RegisteredCall {
    Mono<Void> on(
        int rank,
        Collectives collectives,
        DeviceBuffer one,
        DeviceBuffer all,
        DeviceBuffer unknown);
  }

  private static Collectives checked(LocalRank rank) {
    return checked(rank, CHECKED);
  }

  private static Collectives checked(LocalRank rank, CollectivesOptions options) {
    return Collectives.create(rank.communicator(), options).join();
  }

  private static void verify(Mono<Void> run) {
    ParkingStepVerifier.create(run, LONG).expectComplete().verify(LONG);
  }

  /** Expects that all ranks refuse the call and can run a further call afterwards. */
  private static void shouldRefuse(
      BiFunction<LocalRank, Collectives, Mono<Void>> call, String... messages) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              ParkingStepVerifier.create(call.apply(rank, collectives), LONG)
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
              ParkingStepVerifier.create(
                      collectives.allReduce(
                          rank.rank() == 0 ? known : unknown, DataType.INT32, ReduceOp.SUM),
                      LONG)
                  .expectErrorMatches(
                      e -> e instanceof InvalidUsage && e.getMessage().contains("registration 0"))
                  .verify(LONG);
              verify(collectives.allReduce(known, DataType.INT32, ReduceOp.SUM));
            }
          });
    }
  }

  /** Expects that the ranks accept a call, whichever of its buffers are registered. */
  private static void shouldDo(RegisteredCall call) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer one = rank.device().allocate(64);
              DeviceBuffer all = rank.device().allocate(128);
              DeviceBuffer unknown = rank.device().allocate(128);
              collectives.register(one).join();
              collectives.register(all).join();
              verify(call.on(rank.rank(), collectives, one, all, unknown));
              verify(collectives.barrier());
            }
          });
    }
  }

  @Test
  void shouldAcceptSendsOfRegisteredAndUnregisteredBuffers() {
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            rank == 0
                ? collectives.send(one, 16, DataType.INT32, 1)
                : collectives.recv(one, 16, DataType.INT32, 0));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            rank == 0
                ? collectives.sendReceive(one, 16, 1, all, 16, 1, DataType.INT32)
                : collectives.sendReceive(unknown, 16, 0, one, 16, 0, DataType.INT32));
  }

  @Test
  void shouldNotCompareBuffersOfWhichARankHasNone() {
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.allToAllv(
                rank == 0 ? null : one,
                new long[] {rank == 0 ? 0 : 16, 0},
                rank == 0 ? all : null,
                new long[] {0, rank == 0 ? 16 : 0},
                DataType.INT32));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.gather(
                rank == 0 ? unknown.slice(0, 64) : one,
                rank == 0 ? unknown : null,
                16,
                DataType.INT32,
                0));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.scatter(
                rank == 0 ? unknown : null,
                rank == 0 ? unknown.slice(0, 64) : one,
                16,
                DataType.INT32,
                0));
  }

  @Test
  void shouldNotCompareBuffersThatOnlyTheRootHas() {
    DataType type = DataType.INT32;
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.run(
                CollectiveCall.broadcast(rank == 0 ? one : null, unknown, 16, type, 0)));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.run(CollectiveCall.broadcast(rank == 0 ? one : null, all, 16, type, 0)));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.scatter(rank == 0 ? all : null, one, 16, type, 0));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.reduce(unknown, rank == 0 ? one : null, 16, type, ReduceOp.SUM, 0));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.gather(one, rank == 0 ? all : null, 16, type, 0));
  }

  @Test
  void shouldAcceptInPlaceCallsIfOffsetsDifferPerRank() {
    DataType type = DataType.INT32;
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.allGather(all.slice(64L * rank, 64), all, 16, type));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.reduceScatter(all, all.slice(64L * rank, 64), 16, type, ReduceOp.SUM));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.gather(
                rank == 1 ? all.slice(64, 64) : one, rank == 1 ? all : null, 16, type, 1));
    shouldDo(
        (rank, collectives, one, all, unknown) ->
            collectives.scatter(
                rank == 1 ? all : null, rank == 1 ? all.slice(64, 64) : one, 16, type, 1));
  }

  @Test
  void shouldRefuseARegisteredShareThatLiesElsewhereOutOfPlace() {
    shouldRefuse(
        (rank, collectives) -> {
          DeviceBuffer known = rank.device().allocate(192);
          DeviceBuffer unknown = rank.device().allocate(192);
          collectives.register(known).join();
          return collectives.allGather(
              known.slice(64L * rank.rank(), 64), unknown, 16, DataType.INT32);
        },
        "all-gather count=16",
        "input in registration 0 at ");
  }

  @Test
  void shouldRefuseARootsBufferThatOthersHaveNotRegistered() {
    shouldRefuse(
        (rank, collectives) -> {
          DeviceBuffer known = rank.device().allocate(64);
          DeviceBuffer unknown = rank.device().allocate(64);
          collectives.register(known).join();
          return collectives.broadcast(rank.rank() == 0 ? known : unknown, 16, DataType.INT32, 0);
        },
        "broadcast root=0 count=16",
        "output in registration 0");
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
              ParkingStepVerifier.create(
                      collectives.allToAllv(in, sends, out, receives, DataType.INT32), LONG)
                  .expectErrorMatches(
                      e -> e instanceof InvalidUsage && e.getMessage().contains("bytes"))
                  .verify(LONG);
              verify(collectives.barrier());
            }
          });
    }
  }

  @Test
  void shouldKeepARankWaitingIfOnlyTwoOtherRanksDisagree() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives =
                Collectives.create(rank.communicator(), CHECKED.withTimeout(LONG)).join();
            DeviceBuffer in = rank.device().allocate(64);
            DeviceBuffer out = rank.device().allocate(64);
            long[] sends = {1, 1, 1};
            long[] receives = {1, rank.rank() == 0 ? 2 : 1, 1};
            CompletableFuture<Void> done =
                collectives.allToAllv(in, sends, out, receives, DataType.INT32).toFuture();
            if (rank.rank() == 2) {
              rank.awaitAll();
              assertThat(done).isNotDone();
            } else {
              assertThat(done)
                  .failsWithin(LONG)
                  .withThrowableThat()
                  .withCauseInstanceOf(InvalidUsage.class);
              rank.awaitAll();
            }
            rank.awaitAll();
            if (rank.rank() == 0) {
              rank.communicator().abort(new Aborted(0, "two ranks disagree"));
            }
            assertThat(rank.communicator().failed()).succeedsWithin(LONG);
            assertThat(done).failsWithin(LONG);
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
                ParkingStepVerifier.create(collectives.send(x, 6, DataType.INT32, 2), LONG)
                    .expectError(InvalidUsage.class)
                    .verify(LONG);
              } else if (rank.rank() == 2) {
                verify(collectives.recv(x, 5, DataType.INT32, 0));
                ParkingStepVerifier.create(collectives.recv(x, 7, DataType.INT32, 0), LONG)
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
                        CHECKED.withTimeout(Duration.ofSeconds(1)).withSetupTimeout(LONG))
                    .join();
            rank.awaitAll();
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

  /** The ranks compare the first call when it is cancelled; the second call is still queued. */
  @Test
  void shouldRunCallsIfTheyAreCancelledBeforeTheRanksAgree() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer x = rank.device().allocate(64);
              HostMemory.fill(x.address(), 64, (byte) 0);
              HostMemory.putInt(x.address(), 1 + rank.rank());
              Mono<Void> sum = collectives.allReduce(x, DataType.INT32, ReduceOp.SUM);
              Mono<Void> product =
                  collectives.pipeline().allReduce(x, DataType.INT32, ReduceOp.PROD).run();
              if (rank.rank() == 0) {
                List<Disposable> both = List.of(sum.subscribe(), product.subscribe());
                both.forEach(Disposable::dispose);
              }
              rank.awaitAll();
              if (rank.rank() == 1) {
                verify(sum);
                verify(product);
              }
              verify(sum);
              assertThat(HostMemory.getInt(x.address())).isEqualTo((1 + 2) * (1 + 2) * 2);
              assertThat(rank.communicator().failure()).isNull();
            }
          });
    }
  }

  @Test
  void shouldRunRequestedChunksIfCancelledBeforeTheRanksAgree() {
    cancelTwoChunks(ReduceOp.SUM);
  }

  @Test
  void shouldDropCancelledChunksIfTheFirstChunkIsRefused() {
    cancelTwoChunks(ReduceOp.MAX);
  }

  /** Rank 0 cancels two chunks of a sum before rank 1 requests its chunks. */
  private static void cancelTwoChunks(ReduceOp other) {
    boolean agreed = other == ReduceOp.SUM;
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer x = rank.device().allocate(64);
              HostMemory.fill(x.address(), 64, (byte) 1);
              ReduceOp op = rank.rank() == 0 ? ReduceOp.SUM : other;
              Flux<Chunk> chunks =
                  collectives.chunked(CollectiveCall.allReduce(x, x, 16, DataType.INT32, op), 4, 0);
              if (rank.rank() == 0) {
                chunks.subscribe(
                    new BaseSubscriber<>() {
                      @Override
                      protected void hookOnSubscribe(Subscription subscription) {
                        subscription.request(2);
                        subscription.cancel();
                      }
                    });
              }
              rank.awaitAll();
              if (rank.rank() == 1 && agreed) {
                StepVerifier.create(chunks.take(2))
                    .expectNextCount(2)
                    .expectComplete()
                    .verify(LONG);
              } else if (rank.rank() == 1) {
                StepVerifier.create(chunks.take(2)).expectError(InvalidUsage.class).verify(LONG);
              }
              verify(collectives.barrier());
              for (int i = 0; i < 16; i++) {
                assertThat(HostMemory.getInt(x.address() + 4L * i))
                    .isEqualTo(0x01010101 * (agreed && i < 8 ? 2 : 1));
              }
              assertThat(rank.communicator().failure()).isNull();
            }
          });
    }
  }

  @Test
  void shouldDropACallCancelledBeforeItsTurnIfCancelAborts() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank, ABORT_ON_CANCEL)) {
              DeviceBuffer x = rank.device().allocate(64);
              CompletableFuture<Void> first =
                  rank.rank() == 0
                      ? collectives.barrier().toFuture()
                      : CompletableFuture.completedFuture(null);
              // Queued after the barrier, which rank 1 has not called yet.
              Disposable second =
                  rank.rank() == 0
                      ? collectives.allReduce(x, DataType.INT32, ReduceOp.SUM).subscribe()
                      : () -> {};
              second.dispose();
              rank.awaitAll();
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
  void shouldNotCompareFurtherChunksIfTheFirstIsRefused() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              DeviceBuffer x = rank.device().allocate(64);
              ReduceOp op = rank.rank() == 0 ? ReduceOp.SUM : ReduceOp.MAX;
              // Rank 0 has queued two further chunks, rank 1 none.
              int ahead = rank.rank() == 0 ? 2 : 0;
              StepVerifier.create(
                      collectives.chunked(
                          CollectiveCall.allReduce(x, x, 16, DataType.INT32, op), 4, ahead),
                      1)
                  .expectError(InvalidUsage.class)
                  .verify(LONG);
              verify(collectives.allReduce(x, DataType.INT32, ReduceOp.SUM));
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

  /** Rank 1 calls after rank 0 has cancelled one chunk in comparison and one queued after it. */
  private static void shouldAbortAfter(Consumer<Subscription> givingUp) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank, ABORT_ON_CANCEL)) {
              DeviceBuffer x = rank.device().allocate(64);
              HostMemory.fill(x.address(), 64, (byte) 1);
              Flux<Chunk> chunks =
                  collectives.chunked(
                      CollectiveCall.allReduce(x, x, 16, DataType.INT32, ReduceOp.SUM), 4, 0);
              rank.awaitAll(); // rank 1 must have created its collectives before the abort
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
              rank.awaitAll();
              if (rank.rank() == 1) {
                StepVerifier.create(chunks).expectError(Aborted.class).verify(LONG);
              }
              rank.awaitAll();
              for (int i = 0; i < 16; i++) {
                assertThat(HostMemory.getInt(x.address() + 4L * i)).isEqualTo(0x01010101);
              }
            }
          });
    }
  }

  @Test
  void shouldRunACallAfterManyCancelledCalls() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank, ABORT_ON_CANCEL)) {
              if (rank.rank() == 1) {
                rank.awaitAll();
                verify(collectives.barrier());
                verify(collectives.barrier());
                return;
              }
              CompletableFuture<Void> first = collectives.barrier().toFuture();
              Mono<Void> withdrawn = collectives.barrier();
              List<CompletableFuture<Void>> others = new ArrayList<>();
              for (int i = 0; i < Rounds.of(5_000, 50_000); i++) {
                others.add(withdrawn.toFuture());
              }
              CompletableFuture<Void> last = collectives.barrier().toFuture();
              others.forEach(other -> other.cancel(false));
              rank.awaitAll();
              assertThat(first).succeedsWithin(LONG);
              assertThat(last).succeedsWithin(LONG);
            }
          });
    }
  }

  @Test
  void shouldFailAllWaitersIfTheCommunicatorFails() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = checked(rank)) {
              rank.awaitAll();
              if (rank.rank() == 0) {
                Mono<Void> barrier = collectives.barrier();
                List<CompletableFuture<Void>> waiting = new ArrayList<>();
                for (int i = 0; i < Rounds.of(5_000, 50_000); i++) {
                  waiting.add(barrier.toFuture());
                }
                rank.communicator().abort(new Aborted(0, "in a test"));
                CompletableFuture<?> all =
                    CompletableFuture.allOf(waiting.toArray(CompletableFuture<?>[]::new));
                assertThat(all).failsWithin(LONG);
                assertThat(waiting).allMatch(CompletableFuture::isCompletedExceptionally);
              }
              rank.awaitAll();
            }
          });
    }
  }
}
