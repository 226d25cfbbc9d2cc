// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.ALL_TO_ALL;
import static io.fluxccl.collective.Collective.BARRIER;
import static io.fluxccl.collective.Collective.BROADCAST;
import static io.fluxccl.collective.Collective.GATHER;
import static io.fluxccl.collective.Collective.REDUCE_SCATTER;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.Disposable;
import reactor.core.publisher.Mono;

/** Operations that a rank does not call, or cancels. */
@OnRanks(seconds = 120)
class CollectivesFaultsTest {
  private final CountDownLatch waiting = new CountDownLatch(2);

  private static final Duration LONG = Duration.ofSeconds(120);

  /** A waiting rank needs time to record its peer, also on a busy machine. */
  private static final Duration SHORT = Duration.ofMillis(1500);

  private static final CollectivesOptions ABORT_ON_CANCEL =
      CollectivesOptions.DEFAULT.withTimeout(LONG).withAbortOnCancel(true);

  private static final List<Collective> MANY =
      List.of(ALL_REDUCE, BROADCAST, ALL_TO_ALL, GATHER, REDUCE_SCATTER, BARRIER);

  private static Collectives open(LocalRank rank, Duration timeout) {
    return lane(rank, CollectivesOptions.DEFAULT.withTimeout(timeout).withSetupTimeout(LONG));
  }

  private static DeviceBuffer buffer(LocalRank rank) {
    return rank.device().allocate(1 << 16);
  }

  /** Tokens that are all routed to expert 1, and a plan by which a combine waits for its rank. */
  private static ExpertBatch batch(DeviceBuffer x) {
    ExpertShape shape = new ExpertShape(4, 1, 2, 64, DataType.BFLOAT16, 8);
    DeviceBuffer part = x.slice(1 << 13, 1 << 10);
    byte[] ones = new byte[1 << 10];
    for (int i = 0; i < ones.length; i += Integer.BYTES) {
      ones[i] = 1;
    }
    part.upload(0, ones);
    return new ExpertBatch(shape, part, part, part, part, part, part, part, part, null);
  }

  /** Returns a call in which rank 0 waits for rank 1. */
  private static Mono<Void> call(Collectives collectives, Collective which, LocalRank rank) {
    DeviceBuffer x = buffer(rank);
    DeviceBuffer one = x.slice(0, 1 << 12);
    DeviceBuffer weight = x.slice(1 << 14, 1 << 14);
    DeviceBuffer other = x.slice(1 << 15, 1 << 15);
    return switch (which) {
      case FUSED_ALL_REDUCE ->
          collectives.allReduce(
              one, 1, 512, DataType.FLOAT32, new AddRmsNorm(other, weight, 1, 0, other, one));
      case DISPATCH -> collectives.dispatch(batch(x), one, null, other, null);
      case COMBINE -> collectives.combine(batch(x), other, one);
      default -> {
        int root = which == BROADCAST || which == Collective.SCATTER ? 1 : 0;
        RandomCollectiveCase plain =
            new RandomCollectiveCase(new Random(1), 2, which, 8)
                .with(INT32, 512, false)
                .with(SUM, root);
        DeviceBuffer memory = rank.device().allocate(plain.memory());
        yield collectives.run(plain.on(rank.rank(), memory).call);
      }
    };
  }

  @ParameterizedTest
  @EnumSource
  void shouldTimeOutOnAllRanksIfARankDoesNotCall(Collective which, LocalRank rank) {
    Collectives collectives = open(rank, rank.rank() == 0 ? SHORT : LONG);
    if (rank.rank() == 0) {
      fails(call(collectives, which, rank), Timeout.class, which.label(), "rank 1");
    }
    assertThat(rank.communicator().failed()).succeedsWithin(LONG).isInstanceOf(Timeout.class);
    fails(collectives.barrier(), Timeout.class);
  }

  @Test
  @OnRanks(3)
  void shouldAbortOnAllRanksIfAnOperationIsCancelledAndCancelAborts(LocalRank rank)
      throws Exception {
    Collectives collectives = lane(rank, ABORT_ON_CANCEL);
    if (rank.rank() == 2) {
      waiting.await();
    } else {
      CompletableFuture<Void> failed = new CompletableFuture<>();
      Disposable run =
          collectives
              .allReduce(buffer(rank), INT32, SUM)
              .subscribe(done -> {}, failed::completeExceptionally);
      waiting.countDown();
      waiting.await();
      if (rank.rank() == 0) {
        run.dispose();
      } else {
        fails(failed, Aborted.class, "cancelled by rank 0");
      }
    }
    assertThat(failsJob(rank, Aborted.class).rank()).isZero();
  }

  @Test
  @OnRanks(3)
  void shouldAbortOnAllRanksIfOneOfManyOperationsIsCancelledAndCancelAborts(LocalRank rank) {
    Collectives collectives = lane(rank, ABORT_ON_CANCEL.withThreads(1));
    DeviceBuffer x = rank.device().allocate(1 << 20);
    DeviceBuffer y = rank.device().allocate(1 << 20);
    CompletableFuture<Void> last = null;
    for (int i = 0; i < 200; i++) {
      Collective which = MANY.get(i % MANY.size());
      last = collectives.run(new CallShape(which, 1 << 16, INT32, SUM, 1).on(x, y)).toFuture();
      if (rank.rank() == 1 && i == 150) {
        last.cancel(true);
      }
    }
    failsJob(rank, Aborted.class, "rank 1");
    assertThat(last).failsWithin(LONG);
  }

  @Test
  void shouldRefuseInvalidCallsAndStayUsable(LocalRank rank, LocalRanks ranks) {
    try (Collectives collectives = open(rank, LONG);
        DeviceBuffer x = buffer(rank);
        DeviceBuffer foreign = ranks.ranks().get(1 - rank.rank()).device().allocate(64)) {
      DeviceBuffer closed = buffer(rank);
      closed.close();
      PinnedBuffer closedPinned = rank.device().allocatePinned(64);
      closedPinned.close();
      refuses(() -> CollectiveCall.allReduce(x, x, 1, INT32, null), "op=null");
      List<Function<Collectives, Mono<Void>>> wrong =
          List.of(
              c -> c.pipeline().copy(x, 0, closedPinned, 0, 4).barrier().run(),
              c -> c.allReduce(closed, INT32, SUM),
              c -> c.pipeline().copy(x, 0, closed, 0, 4).barrier().run(),
              c -> c.allReduce(x, x, 1 << 15, INT32, SUM),
              c -> c.allReduce(foreign, INT32, SUM),
              c -> c.allReduce(x.slice(2, 8), INT32, SUM),
              c -> c.broadcast(x, 4, INT32, 2),
              c -> c.send(x, 4, INT32, -3),
              c -> c.allGather(x, x.slice(32, 1 << 15), 16, INT32),
              c -> c.allToAllv(x, new long[] {1}, x.slice(64, 64), new long[] {1}, INT32),
              c ->
                  c.pipeline()
                      .allReduce(x, INT32, SUM)
                      .then(CollectiveCall.broadcast(x, x, 1 << 20, INT32, 0))
                      .run());
      for (Function<Collectives, Mono<Void>> call : wrong) {
        fails(call.apply(collectives), InvalidUsage.class, "rank " + rank.rank());
      }
      assertThat(rank.communicator().failure()).isNull();
      completes(collectives.barrier());
    }
  }
}
