// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.FinalMocks.mockFinal;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.when;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/** The threads of named calls while operations of rank 0 are held, and verdicts from a peer. */
@OnRanks(value = 3, seconds = 120)
class NamedAgentTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  /** More buckets than a link's ring has slots. */
  private static final int BUCKETS = NamedLink.slots(3) + 8;

  private static final int BUSY = NamedOrder.MOST_IN_FLIGHT;

  /** Named calls of a rank. Rank 1 does none of its work until it is released. */
  private static final class Held implements AutoCloseable {
    final LocalRank rank;
    final NamedCollectives named;
    final CountDownLatch released = new CountDownLatch(1);
    final FloatView x;

    /** As many operations as may be in flight. */
    final List<CompletableFuture<Void>> first = new ArrayList<>();

    Held(LocalRank rank) {
      this.rank = rank;
      named = rank.collectives().named().join();
      x = rank.device().allocateFloats(1);
      x.put(0, rank.rank());
      if (rank.rank() == 1) {
        HostKernel wait = HostKernel.of("wait", (thread, args) -> released.await());
        named.lane.stream.launch(wait, 1, 1, KernelArgs.of());
      }
      for (int i = 0; i < BUSY; i++) {
        first.add(named.allReduce("first", x, MAX).toFuture());
        awaitRounds(i + 1);
      }
    }

    /** Begins all-reduces that rank 0 holds, and waits until it knows them of all ranks. */
    List<CompletableFuture<Void>> begin(int calls) {
      List<CompletableFuture<Void>> all =
          IntStream.range(0, calls)
              .mapToObj(i -> named.allReduce("call " + i, x, MAX).toFuture())
              .toList();
      named.barrier("after all").subscribe(null, failure -> {});
      awaitRounds(BUSY + 1);
      rank.awaitAll();
      return all;
    }

    void awaitRounds(int rounds) {
      await().atMost(LONG).until(() -> named.lane.rounds >= rounds);
    }

    @Override
    public void close() {
      rank.awaitAll();
      named.close();
      await().atMost(LONG).until(named.ended()::isDone);
      x.close();
    }
  }

  @Test
  void shouldSendARankThatLeavesMoreThanItsRingHoldsAndThenSleep(LocalRank rank) {
    try (Held held = new Held(rank)) {
      List<CompletableFuture<Void>> all = held.begin(BUCKETS * NamedBuckets.MOST_MEMBERS);
      if (rank.rank() == 2) {
        held.named.close();
      }
      if (rank.rank() == 0) {
        held.awaitRounds(BUSY + 1 + BUCKETS);
      }
      rank.awaitAll();
      held.released.countDown();
      all.forEach(each -> assertThat(each).succeedsWithin(LONG));
      assertThat(held.x.get(0)).isEqualTo(2);
      await().atMost(LONG).until(() -> !held.named.agent.hasPosts());
    }
  }

  @Test
  void shouldSleepAfterAFailureWhileCallsAreHeld(LocalRank rank) {
    try (Held held = new Held(rank)) {
      List<CompletableFuture<Void>> all = held.begin(1);
      held.named.agent.fail(Aborted.of(1, "as the test wants"));
      all.forEach(each -> fails(each, Aborted.class, "as the test wants"));
      // Rank 0 must have failed its held call before rank 1's work ends, or it would begin it.
      rank.awaitAll();
      held.released.countDown();
      await().atMost(LONG).until(() -> held.first.stream().allMatch(CompletableFuture::isDone));
      await().atMost(LONG).until(() -> !held.named.agent.hasPosts());
    }
  }

  // ---- verdicts ----

  private static NamedCall call(String name, long count, ReduceOp op) {
    return call(name, count, op, new CompletableFuture<>());
  }

  /** Returns a call whose subscriber's signal ends a future. */
  private static NamedCall call(
      String name, long count, ReduceOp op, CompletableFuture<Void> signal) {
    CollectiveCall call = CollectiveCall.allReduce(null, null, count, DataType.FLOAT32, op);
    NamedCall[] made = new NamedCall[1];
    Mono.<Void>create(sink -> made[0] = new NamedCall(name, call, null, sink, 0))
        .subscribe(null, signal::completeExceptionally, () -> signal.complete(null));
    return made[0];
  }

  @Test
  @OnRanks(1)
  void shouldSignalAllSubscribersIfABucketCanNotBeMade(LocalRank rank) {
    NamedCollectives named = rank.collectives().named().join();
    NamedOptions small = NamedOptions.DEFAULT.withBucketBytes(16);
    NamedBuckets buckets = new NamedBuckets(named.lane, small);
    List<CompletableFuture<Void>> signals =
        List.of(new CompletableFuture<>(), new CompletableFuture<>());
    List<NamedCall> calls = signals.stream().map(each -> call("x", 4, SUM, each)).toList();
    CountDownLatch over = new CountDownLatch(1);
    NamedCall.run(calls, named.lane, buckets, over::countDown);
    signals.forEach(each -> fails(each, InvalidUsage.class, "slice range"));
    assertThat(over.getCount()).as("operations in flight").isZero();
    assertThat(rank.communicator().failure()).isInstanceOf(InvalidUsage.class);
    buckets.close();
    named.close();
  }

  /** Reactor would throw such an error to the agent's cycle, and signal no subscriber. */
  @Test
  @OnRanks(1)
  void shouldSignalAllSubscribersIfABucketHasNoMemory(LocalRank rank) {
    NamedCollectives named = rank.collectives().named().join();
    NamedBuckets buckets = mockFinal(NamedBuckets.class);
    when(buckets.step(any(), any())).thenThrow(new OutOfMemoryError("as the test wants"));
    List<CompletableFuture<Void>> signals =
        List.of(new CompletableFuture<>(), new CompletableFuture<>());
    List<NamedCall> calls = signals.stream().map(each -> call("x", 4, SUM, each)).toList();
    CountDownLatch over = new CountDownLatch(1);
    NamedCall.run(calls, named.lane, buckets, over::countDown);
    signals.forEach(each -> fails(each, OutOfMemoryError.class, "as the test wants"));
    assertThat(over.getCount()).as("operations in flight").isZero();
    failsJob(rank, Aborted.class, "OutOfMemoryError");
    named.close();
  }

  private static WireReader verdict(long... numbers) {
    WireWriter out = new WireWriter();
    LongStream.of(numbers).forEach(number -> out.int32((int) number));
    return WireReader.ofPeer(out.toBytes(), "named call", 0);
  }

  @Test
  @OnRanks(1)
  void shouldRefuseABucketThatRankZeroNeverForms() {
    Map<Long, NamedCall> announced = new HashMap<>();
    for (long number = 0; number < 130; number++) {
      announced.put(number, call("call " + number, number == 5 ? 9 : 1, number == 7 ? MAX : SUM));
    }
    assertThat(NamedAgent.readBegun(verdict(3, 1, 2), announced, 48)).containsExactly(3L, 1L, 2L);
    assertThat(NamedAgent.readBegun(verdict(7), announced, 0)).containsExactly(7L);
    long[] many = LongStream.range(8, 8 + NamedBuckets.MOST_MEMBERS + 1).toArray();
    for (long[] wrong : List.of(new long[] {1, 130}, new long[] {1, 2, 1}, new long[] {1, 7})) {
      assertRefused(announced, 1 << 20, wrong);
    }
    assertRefused(announced, 1 << 20, many);
    assertRefused(announced, 48, 1, 2, 5);
    assertRefused(announced, 0, 1, 2);
    assertThat(announced).hasSize(130);
  }

  private static void assertRefused(Map<Long, NamedCall> announced, long bytes, long... numbers) {
    assertThatThrownBy(() -> NamedAgent.readBegun(verdict(numbers), announced, bytes))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("number");
  }
}
