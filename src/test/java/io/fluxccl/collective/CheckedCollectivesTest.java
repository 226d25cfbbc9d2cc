// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.reactivestreams.Subscription;
import reactor.core.Disposable;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** The checked mode: it compares calls between the ranks before it enqueues them. */
@OnRanks(seconds = 120)
class CheckedCollectivesTest implements OnRanks.Opening {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final CollectivesOptions CHECKED = CollectivesOptions.DEFAULT.withChecks(true);
  private static final CollectivesOptions ABORT_ON_CANCEL = CHECKED.withAbortOnCancel(true);

  private final CompletableFuture<Void> tried = new CompletableFuture<>();

  @Override
  public Collectives open(LocalRank rank) {
    return lane(rank, CHECKED);
  }

  /** Two registered buffers of 64 and 128 bytes, and one of 128 bytes that is not registered. */
  private record Memory(DeviceBuffer one, DeviceBuffer all, DeviceBuffer other) {
    static Memory of(LocalRank rank, Collectives collectives) {
      DeviceBuffer one = rank.device().allocate(64);
      DeviceBuffer all = rank.device().allocate(128);
      collectives.register(one).join();
      collectives.register(all).join();
      return new Memory(one, all, rank.device().allocate(128));
    }
  }

  private interface Calls {
    CollectiveCall of(int rank, Memory memory);
  }

  private enum Refused {
    OTHER_OPERATION(
        (me, of) ->
            me == 1
                ? CollectiveCall.broadcast(of.one, of.one, 4, INT32, 0)
                : CollectiveCall.allReduce(of.one, of.one, 16, INT32, SUM),
        "broadcast root=0 count=4 type=INT32",
        "all-reduce count=16 type=INT32 op=SUM",
        "rank 1"),
    OTHER_COUNT(
        (me, of) -> CollectiveCall.allReduce(of.all, of.all, 16 + me, INT32, SUM),
        "count=16",
        "operation 1"),
    REGISTERED_ON_ONE_RANK(
        (me, of) -> {
          DeviceBuffer x = me == 0 ? of.one : of.other;
          return CollectiveCall.allReduce(x, x, 16, INT32, SUM);
        },
        "registration 0"),
    SHARE_THAT_IS_ELSEWHERE(
        (me, of) -> {
          DeviceBuffer x = of.all.slice(32L * me, 32);
          return CollectiveCall.allGather(x, of.other, 8, INT32);
        },
        "all-gather count=8",
        "input in registration 1 at "),
    REGISTERED_ON_THE_ROOT_ONLY(
        (me, of) -> {
          DeviceBuffer x = me == 0 ? of.one : of.other;
          return CollectiveCall.broadcast(x, x, 16, INT32, 0);
        },
        "broadcast root=0 count=16",
        "output in registration 0"),
    OTHER_EPILOGUE(
        (me, of) -> {
          float epsilon = me == 0 ? 1e-5f : 1e-6f;
          AddRmsNorm norm = new AddRmsNorm(of.other, of.other, epsilon, 0, null, of.all);
          return CollectiveCall.fusedAllReduce(of.one, 1, 8, FLOAT32, norm);
        },
        "add-rms-norm(epsilon=1.0E-5 weightBias=0.0)",
        "add-rms-norm(epsilon=1.0E-6 weightBias=0.0)");

    private final Calls calls;
    private final String[] messages;

    Refused(Calls calls, String... messages) {
      this.calls = calls;
      this.messages = messages;
    }
  }

  @ParameterizedTest
  @EnumSource
  @OnRanks(3)
  void shouldRefuseDifferentCallsOnAllRanks(
      Refused refused, LocalRank rank, Collectives collectives) {
    Memory memory = Memory.of(rank, collectives);
    CollectiveCall call = refused.calls.of(rank.rank(), memory);
    fails(collectives.run(call), InvalidUsage.class, refused.messages);
    assertThat(rank.communicator().failure()).isNull();
    completes(collectives.allReduce(memory.one, INT32, SUM));
  }

  private enum Accepted {
    SEND_FROM_REGISTERED(
        (me, of) ->
            me == 0
                ? CollectiveCall.sendReceive(of.one, 16, 1, null, 0, -1, INT32)
                : CollectiveCall.sendReceive(null, 0, -1, of.one, 16, 0, INT32)),
    SEND_OF_BOTH_KINDS(
        (me, of) ->
            me == 0
                ? CollectiveCall.sendReceive(of.one, 16, 1, of.all, 16, 1, INT32)
                : CollectiveCall.sendReceive(of.other, 16, 0, of.one, 16, 0, INT32)),
    NO_INPUT_ON_ONE_AND_NO_OUTPUT_ON_THE_OTHER(
        (me, of) ->
            CollectiveCall.allToAllv(
                me == 0 ? null : of.one,
                new long[] {me == 0 ? 0 : 16, 0},
                me == 0 ? of.all : null,
                new long[] {0, me == 0 ? 16 : 0},
                INT32)),
    GATHER_INTO_UNREGISTERED(
        (me, of) ->
            CollectiveCall.gather(
                me == 0 ? of.other.slice(0, 64) : of.one, me == 0 ? of.other : null, 16, INT32, 0)),
    SCATTER_FROM_UNREGISTERED(
        (me, of) ->
            CollectiveCall.scatter(
                me == 0 ? of.other : null, me == 0 ? of.other.slice(0, 64) : of.one, 16, INT32, 0)),
    BROADCAST_INTO_UNREGISTERED(
        (me, of) -> CollectiveCall.broadcast(me == 0 ? of.one : null, of.other, 16, INT32, 0)),
    BROADCAST_INTO_REGISTERED(
        (me, of) -> CollectiveCall.broadcast(me == 0 ? of.one : null, of.all, 16, INT32, 0)),
    SCATTER_FROM_REGISTERED(
        (me, of) -> CollectiveCall.scatter(me == 0 ? of.all : null, of.one, 16, INT32, 0)),
    REDUCE_FROM_UNREGISTERED(
        (me, of) -> CollectiveCall.reduce(of.other, me == 0 ? of.one : null, 16, INT32, SUM, 0)),
    GATHER_INTO_REGISTERED(
        (me, of) -> CollectiveCall.gather(of.one, me == 0 ? of.all : null, 16, INT32, 0)),
    ALL_GATHER_IN_PLACE(
        (me, of) -> CollectiveCall.allGather(of.all.slice(64L * me, 64), of.all, 16, INT32)),
    REDUCE_SCATTER_IN_PLACE(
        (me, of) ->
            CollectiveCall.reduceScatter(of.all, of.all.slice(64L * me, 64), 16, INT32, SUM)),
    GATHER_IN_PLACE(
        (me, of) ->
            CollectiveCall.gather(
                me == 1 ? of.all.slice(64, 64) : of.one, me == 1 ? of.all : null, 16, INT32, 1)),
    SCATTER_IN_PLACE(
        (me, of) ->
            CollectiveCall.scatter(
                me == 1 ? of.all : null, me == 1 ? of.all.slice(64, 64) : of.one, 16, INT32, 1));

    private final Calls calls;

    Accepted(Calls calls) {
      this.calls = calls;
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldNotCompareBuffersThatMayDiffer(
      Accepted accepted, LocalRank rank, Collectives collectives) {
    Memory memory = Memory.of(rank, collectives);
    completes(collectives.run(accepted.calls.of(rank.rank(), memory)));
    completes(collectives.barrier());
  }

  @Test
  void shouldRefuseAPartThatThePeerDoesNotExpect(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(128);
    long[] receives = rank.rank() == 0 ? new long[] {1, 3} : new long[] {2, 2};
    Mono<Void> run =
        collectives.allToAllv(x.slice(0, 64), new long[] {1, 2}, x.slice(64, 64), receives, INT32);
    fails(run, InvalidUsage.class, "bytes");
    completes(collectives.barrier());
  }

  @Test
  @OnRanks(3)
  void shouldKeepARankWaitingIfOnlyTwoOtherRanksDisagree(LocalRank rank) {
    Collectives collectives = lane(rank, CHECKED.withTimeout(LONG));
    DeviceBuffer in = rank.device().allocate(64);
    DeviceBuffer out = rank.device().allocate(64);
    long[] sends = {1, 1, 1};
    long[] receives = {1, rank.rank() == 0 ? 2 : 1, 1};
    CompletableFuture<Void> done =
        collectives.allToAllv(in, sends, out, receives, INT32).toFuture();
    if (rank.rank() == 2) {
      rank.awaitAll();
      assertThat(done).isNotDone();
    } else {
      fails(done, InvalidUsage.class);
      rank.awaitAll();
    }
    rank.awaitAll();
    if (rank.rank() == 0) {
      rank.communicator().abort(new Aborted(0, "two ranks disagree"));
    }
    assertThat(rank.communicator().failed()).succeedsWithin(LONG);
    assertThat(done).failsWithin(LONG);
  }

  @Test
  @OnRanks(3)
  void shouldCompareSendsWithReceivesOfTheirPeersOnly(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(64);
    if (rank.rank() == 0) {
      completes(collectives.send(x, 5, INT32, 2));
      fails(collectives.send(x, 6, INT32, 2), InvalidUsage.class);
    } else if (rank.rank() == 2) {
      completes(collectives.recv(x, 5, INT32, 0));
      fails(collectives.recv(x, 7, INT32, 0), InvalidUsage.class);
    }
    completes(collectives.barrier());
  }

  @Test
  void shouldNameTheRankThatCallsNothing(LocalRank rank) {
    Collectives collectives =
        lane(rank, CHECKED.withTimeout(Duration.ofSeconds(1)).withSetupTimeout(LONG));
    if (rank.rank() == 0) {
      fails(collectives.barrier(), Timeout.class, "barrier", "rank 1");
      tried.complete(null);
    }
    tried.join();
    assertThat(rank.communicator().failed()).succeedsWithin(LONG);
  }

  @Test
  void shouldRunCallsIfTheyAreCancelledBeforeTheRanksAgree(
      LocalRank rank, Collectives collectives) {
    IntView x = rank.device().allocateInts(16);
    x.put(0, 1 + rank.rank());
    Mono<Void> sum = collectives.allReduce(x, SUM);
    Mono<Void> product = collectives.pipeline().allReduce(x, ReduceOp.PROD).run();
    if (rank.rank() == 0) {
      List<Disposable> both = List.of(sum.subscribe(), product.subscribe());
      both.forEach(Disposable::dispose);
    }
    rank.awaitAll();
    if (rank.rank() == 1) {
      completes(sum);
      completes(product);
    }
    completes(sum);
    assertThat(x.get(0)).isEqualTo((1 + 2) * (1 + 2) * 2);
    assertThat(rank.communicator().failure()).isNull();
  }

  /** Requests two chunks while the first one is compared, and gives them up. */
  private static void giveUpTwo(Flux<Chunk> chunks, Consumer<Subscription> givingUp) {
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
  }

  private static Flux<Chunk> chunks(Collectives collectives, IntView x, ReduceOp op, int prefetch) {
    DeviceBuffer buffer = x.buffer();
    return collectives.chunked(
        CollectiveCall.allReduce(buffer, buffer, 16, INT32, op), 4, prefetch);
  }

  @ParameterizedTest
  @EnumSource(names = {"SUM", "MAX"})
  void shouldRunRequestedChunksOnlyIfTheRanksAgreeAfterACancel(
      ReduceOp other, LocalRank rank, Collectives collectives) {
    boolean agreed = other == SUM;
    IntView x = rank.device().allocateInts(16);
    x.put(new int[] {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    Flux<Chunk> chunks = chunks(collectives, x, rank.rank() == 0 ? SUM : other, 0);
    if (rank.rank() == 0) {
      giveUpTwo(chunks, Subscription::cancel);
    }
    rank.awaitAll();
    if (rank.rank() == 1 && agreed) {
      StepVerifier.create(chunks.take(2)).expectNextCount(2).expectComplete().verify(LONG);
    } else if (rank.rank() == 1) {
      StepVerifier.create(chunks.take(2)).expectError(InvalidUsage.class).verify(LONG);
    }
    completes(collectives.barrier());
    assertThat(x.slice(0, 8).toArray()).containsOnly(agreed ? 2 : 1);
    assertThat(x.slice(8, 8).toArray()).containsOnly(1);
    assertThat(rank.communicator().failure()).isNull();
  }

  @Test
  void shouldDropACallCancelledBeforeItsTurnIfCancelAborts(LocalRank rank) {
    try (Collectives collectives = lane(rank, ABORT_ON_CANCEL)) {
      DeviceBuffer x = rank.device().allocate(64);
      CompletableFuture<Void> first = new CompletableFuture<>();
      if (rank.rank() == 0) {
        first = collectives.barrier().toFuture();
        collectives.allReduce(x, INT32, SUM).subscribe().dispose();
      }
      rank.awaitAll();
      if (rank.rank() == 1) {
        completes(collectives.barrier());
      } else {
        first.join();
      }
      completes(collectives.allReduce(x, INT32, MAX));
      assertThat(rank.communicator().failure()).isNull();
    }
  }

  @Test
  void shouldNotCompareFurtherChunksIfTheFirstIsRefused(LocalRank rank, Collectives collectives) {
    IntView x = rank.device().allocateInts(16);
    boolean isFirst = rank.rank() == 0;
    StepVerifier.create(chunks(collectives, x, isFirst ? SUM : MAX, isFirst ? 2 : 0), 1)
        .expectError(InvalidUsage.class)
        .verify(LONG);
    completes(collectives.allReduce(x, SUM));
    assertThat(rank.communicator().failure()).isNull();
  }

  private enum GivingUp {
    CANCEL(Subscription::cancel),
    WRONG_DEMAND(subscription -> subscription.request(0));

    private final Consumer<Subscription> action;

    GivingUp(Consumer<Subscription> action) {
      this.action = action;
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldAbortIfChunksAreGivenUpWhileTheFirstIsCompared(GivingUp givingUp, LocalRank rank) {
    try (Collectives collectives = lane(rank, ABORT_ON_CANCEL)) {
      IntView x = rank.device().allocateInts(16);
      Flux<Chunk> chunks = chunks(collectives, x, SUM, 0);
      x.put(new int[] {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
      rank.awaitAll(); // rank 1 must have created its collectives before the abort
      if (rank.rank() == 0) {
        giveUpTwo(chunks, givingUp.action);
        failsJob(rank, Aborted.class, "chunk 0 of all-reduce", "cancelled by rank 0");
      }
      rank.awaitAll();
      if (rank.rank() == 1) {
        StepVerifier.create(chunks).expectError(Aborted.class).verify(LONG);
      }
      rank.awaitAll();
      assertThat(x.toArray()).containsOnly(1);
    }
  }

  @Test
  void shouldRunACallAfterManyCancelledCalls(LocalRank rank) {
    try (Collectives collectives = lane(rank, ABORT_ON_CANCEL)) {
      if (rank.rank() == 1) {
        rank.awaitAll();
        completes(collectives.barrier());
        completes(collectives.barrier());
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
  }

  @Test
  void shouldFailAllWaitersIfTheCommunicatorFails(LocalRank rank, Collectives collectives) {
    if (rank.rank() == 0) {
      Mono<Void> barrier = collectives.barrier();
      List<CompletableFuture<Void>> waiting = new ArrayList<>();
      for (int i = 0; i < Rounds.of(5_000, 50_000); i++) {
        waiting.add(barrier.toFuture());
      }
      rank.communicator().abort(new Aborted(0, "in a test"));
      assertThat(CompletableFuture.allOf(waiting.toArray(CompletableFuture<?>[]::new)))
          .failsWithin(LONG);
      assertThat(waiting).allMatch(CompletableFuture::isCompletedExceptionally);
    }
    rank.awaitAll();
  }
}
