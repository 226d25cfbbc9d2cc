// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.PipelineKernels.hold;
import static io.fluxccl.collective.PipelineKernels.ints;
import static io.fluxccl.collective.PipelineKernels.release;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeoutException;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.Disposable;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Hooks;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** A run cancelled in flight still completes, but its subscriber receives no further signals. */
@org.junit.jupiter.api.Timeout(180)
@OnRanks(value = 3, seconds = 120)
class CancelledRunTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(250);

  /** Ways to reduce a buffer once. */
  private enum Kind {
    COLLECTIVE,
    PIPELINE,
    CAPTURED,
    CAPTURED_TWICE;

    private int times() {
      return this == CAPTURED_TWICE ? 2 : 1;
    }

    private Mono<Void> on(Collectives collectives, DeviceBuffer x) {
      Pipeline pipeline = collectives.pipeline().allReduce(x, INT32, SUM);
      return switch (this) {
        case COLLECTIVE -> collectives.allReduce(x, INT32, SUM);
        case PIPELINE -> pipeline.run();
        case CAPTURED -> pipeline.capture().run();
        case CAPTURED_TWICE -> pipeline.capture().run(2);
      };
    }
  }

  /** Cancels the run on one rank before the others call; all ranks then complete it. */
  private static void givesUp(
      LocalRank rank, Collectives collectives, Kind kind, UnaryOperator<Mono<Void>> giveUp) {
    DeviceBuffer x = ints(rank.device(), 1);
    Mono<Void> run = kind.on(collectives, x);
    if (rank.rank() == 1) {
      completes(giveUp.apply(run));
      assertThat(collectives.lane.watch.runs).hasSize(1);
    }
    rank.awaitAll();
    if (rank.rank() != 1) {
      completes(run);
    }
    completes(kind.on(collectives, x));
    assertThat(PipelineKernels.get(x)).containsExactly(kind.times() == 2 ? 81 : 9);
    assertThat(rank.communicator().failure()).isNull();
    assertThat(collectives.lane.watch.runs).isEmpty();
    rank.awaitAll();
  }

  /** Ways of a subscriber not to wait for the end of a run. */
  private enum GivingUp {
    TIMEOUT(run -> run.timeout(SHORT).onErrorComplete(TimeoutException.class)),
    FIRST_SIGNAL(run -> Mono.firstWithSignal(run, Mono.delay(SHORT).then())),
    OTHER_SIGNAL(run -> run.takeUntilOther(Mono.delay(SHORT))),
    AT_ONCE(run -> run.takeUntilOther(Mono.empty())),
    FUTURE(
        run -> {
          assertThat(run.toFuture().cancel(true)).isTrue();
          return Mono.empty();
        });

    private final UnaryOperator<Mono<Void>> way;

    GivingUp(UnaryOperator<Mono<Void>> way) {
      this.way = way;
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldCompleteOnAllRanksIfOneSubscriberGivesUp(
      GivingUp givingUp, LocalRank rank, Collectives collectives) {
    for (Kind kind : Kind.values()) {
      givesUp(rank, collectives, kind, givingUp.way);
    }
  }

  @Test
  void shouldCompleteAfterATimeoutIfASchedulerIsConfigured(LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withScheduler(Schedulers.boundedElastic());
    givesUp(rank, lane(rank, options), Kind.PIPELINE, GivingUp.TIMEOUT.way);
  }

  @Test
  void shouldNotAffectOtherSubscribersOfAPipeline(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1);
    PinnedBuffer gate = rank.device().allocatePinned(64);
    Mono<Void> run =
        hold(collectives.pipeline(), rank.device(), gate).allReduce(x, INT32, SUM).run();
    List<Object> heard = new CopyOnWriteArrayList<>();
    CompletableFuture<Void> first = run.toFuture();
    Disposable second = run.subscribe(null, heard::add, () -> heard.add("completed by itself"));
    CompletableFuture<Void> third = run.toFuture();
    second.dispose();
    release(gate);
    assertThat(first).succeedsWithin(LONG);
    assertThat(third).succeedsWithin(LONG);
    assertThat(heard).as("who has cancelled hears nothing").isEmpty();
    assertThat(PipelineKernels.get(x)).containsExactly(27);
  }

  /** The timeout still fails a run that never finishes, although no subscriber is left. */
  @ParameterizedTest
  @EnumSource
  void shouldTimeOutWithoutASubscriber(Kind kind) {
    List<Throwable> dropped = new CopyOnWriteArrayList<>();
    Hooks.onErrorDropped(dropped::add);
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(LONG, rank -> timeOut(kind, rank));
      assertThat(dropped).isEmpty();
    } finally {
      Hooks.resetOnErrorDropped();
    }
  }

  private static void timeOut(Kind kind, LocalRank rank) {
    Collectives collectives =
        lane(
            rank,
            CollectivesOptions.DEFAULT.withTimeout(Duration.ofMillis(500)).withSetupTimeout(LONG));
    rank.awaitAll();
    if (rank.rank() == 0) {
      kind.on(collectives, ints(rank.device(), 1)).timeout(SHORT).subscribe(null, e -> {});
      await().atMost(LONG).until(() -> rank.communicator().failure() != null);
      await().atMost(LONG).until(() -> collectives.lane.watch.runs.isEmpty());
    }
    String what = kind == Kind.CAPTURED_TWICE ? "2 times a captured pipeline" : "";
    failsJob(rank, Timeout.class, what, "on rank 0: not done within 500 ms");
    rank.awaitAll();
  }

  @Test
  void shouldNotRetainACancelledSubscriber(LocalRank rank, Collectives collectives) {
    PinnedBuffer gate = rank.device().allocatePinned(64);
    Mono<Void> run = hold(collectives.pipeline(), rank.device(), gate).barrier().run();
    WeakReference<Object> subscriber = cancelled(run);
    await()
        .atMost(LONG)
        .until(
            () -> {
              System.gc();
              return subscriber.get() == null;
            });
    assertThat(collectives.lane.watch.runs).hasSize(1);
    release(gate);
    completes(collectives.barrier());
  }

  private static WeakReference<Object> cancelled(Mono<Void> run) {
    BaseSubscriber<Void> subscriber = new BaseSubscriber<>() {};
    run.subscribe(subscriber);
    subscriber.cancel();
    return new WeakReference<>(subscriber);
  }

  /** Close waits for the peers, which still need this rank's part of the run. */
  @Test
  void shouldNotCutOffPeersIfAGroupIsClosedAfterACancelledRun() {
    List<RankGroup> groups = RankGroup.local(2);
    List<DeviceBuffer> buffers = groups.stream().map(group -> ints(group.device(), 7)).toList();
    Mono<Void> cancelled = groups.get(0).collectives().allReduce(buffers.get(0), INT32, SUM);
    cancelled.subscribe().dispose();
    CompletableFuture<Void> first = groups.get(0).closeAsync();
    completes(groups.get(1).collectives().allReduce(buffers.get(1), INT32, SUM));
    assertThat(PipelineKernels.get(buffers.get(1))).containsExactly(14);
    assertThat(first).isNotDone();
    assertThat(groups.get(1).closeAsync()).succeedsWithin(LONG);
    assertThat(first).succeedsWithin(LONG);
  }

  @Test
  void shouldFinishCancelledRunsIfCollectivesAreClosed(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1);
    PinnedBuffer gate = rank.device().allocatePinned(64);
    CapturedPipeline captured = collectives.pipeline().allReduce(x, INT32, SUM).capture();
    Mono<Void> first = hold(collectives.pipeline(), rank.device(), gate).run();
    Stream.of(first, captured.run(), captured.run(2), collectives.allReduce(x, INT32, SUM))
        .forEach(run -> run.subscribe().dispose());
    captured.close();
    collectives.close();
    assertThat(collectives.lane.watch.runs).hasSize(4);
    assertThat(PipelineKernels.get(x)).containsExactly(1);
    release(gate);
    await().atMost(LONG).until(() -> collectives.lane.watch.runs.isEmpty());
    assertThat(PipelineKernels.get(x)).containsExactly(81);
    assertThat(rank.communicator().failure()).isNull();
  }
}
