// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.PipelineKernels.hold;
import static io.fluxccl.collective.PipelineKernels.ints;
import static io.fluxccl.collective.PipelineKernels.release;
import static io.fluxccl.collective.PipelineKernels.scale;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Mono;

/** Runs that fail. */
@org.junit.jupiter.api.Timeout(180)
@OnRanks(seconds = 120)
class PipelineFaultsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private static Pipeline thenBreak(Pipeline pipeline) {
    HostKernel broken =
        HostKernel.of(
            "broken",
            (thread, args) -> {
              throw new IllegalStateException("on purpose");
            });
    return pipeline.launch(broken, 1, 1, KernelArgs.NONE);
  }

  @Test
  void shouldAbortOnAllRanksWhenAStepInTheMiddleCantBeEnqueued(
      LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1);
    Pipeline pipeline = collectives.pipeline().allReduce(x, INT32, SUM);
    if (rank.rank() == 1) {
      // The block is too large, which only the launch detects.
      pipeline =
          pipeline.launch(HostKernel.of("vast", (thread, args) -> {}), 1, 1 << 20, KernelArgs.NONE);
    }
    pipeline = pipeline.allReduce(x, INT32, SUM);
    fails(pipeline.run(), InvalidUsage.class, "vast");
  }

  @Test
  void shouldRefuseMoreStepsThanThereCanBe(LocalRank rank, Collectives collectives) {
    Pipeline one = collectives.pipeline().barrier();
    CapturedPipeline captured = one.capture();
    for (int times : new int[] {1 << 25, 1 << 30, Integer.MAX_VALUE}) {
      fails(one.run(times), InvalidUsage.class, "times=" + times, "1 steps");
      fails(one.barrier().run(times), InvalidUsage.class, "times=" + times, "2 steps");
      fails(captured.run(times), InvalidUsage.class, "times=" + times);
    }
    assertThat(collectives.pipeline().run(Integer.MAX_VALUE).toFuture()).succeedsWithin(LONG);
    assertThat(one.run(3).toFuture()).succeedsWithin(LONG);
    rank.awaitAll();
  }

  @Test
  @OnRanks(3)
  void shouldAbortOnAllRanksWhenAKernelFails(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1);
    Pipeline pipeline = scale(collectives.pipeline(), x, 2, 0);
    if (rank.rank() == 2) {
      pipeline = thenBreak(pipeline);
    }
    CapturedPipeline captured = pipeline.allReduce(x, INT32, SUM).capture();
    rank.awaitAll();
    Mono<Void> run = captured.run();
    // Ranks may complete runs before they learn of the failure, but not later ones.
    fails(run.repeat(1000).then(), DeviceFailure.class, "on purpose");
  }

  @RepeatedTest(10)
  void shouldNotReduceTheOutputOfAFailedKernel(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1);
    Pipeline pipeline = collectives.pipeline();
    if (rank.rank() == 0) {
      pipeline = thenBreak(pipeline);
    }
    fails(pipeline.allReduce(x, INT32, SUM).run(), DeviceFailure.class, "on purpose");
    for (int i = 0; i < 10; i++) {
      fails(collectives.barrier(), DeviceFailure.class);
    }
    assertThat(rank.communicator().failure().getSuppressed()).isEmpty();
  }

  @Test
  void shouldFailAllRunsInFlightIfAPeerAborts(LocalRank rank, Collectives collectives) {
    if (rank.rank() == 1) {
      rank.communicator().abort(new Aborted(1, "rank 1 has had enough"));
      return;
    }
    DeviceBuffer x = ints(rank.device(), 1);
    List<CompletableFuture<Void>> runs = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      runs.add(collectives.pipeline().allReduce(x, INT32, SUM).run().toFuture());
    }
    for (CompletableFuture<Void> run : runs) {
      fails(run, Aborted.class, "had enough");
    }
  }

  @Test
  void shouldOpenRegisterAndRunWithoutALimit(LocalRank rank) {
    Collectives collectives =
        lane(
            rank,
            CollectivesOptions.DEFAULT
                .withTimeout(Duration.ofSeconds(Long.MAX_VALUE))
                .withChecks(true));
    DeviceBuffer x = ints(rank.device(), 1);
    Registration registration = collectives.register(x).join();
    completes(collectives.allReduce(x, INT32, SUM));
    assertThat(PipelineKernels.get(x)).containsExactly(2);
    registration.close();
    rank.awaitAll();
  }

  @Test
  void shouldNameTheLimitOfTheRunThatIsNotDoneInTime(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1);
    CollectiveCall call = CollectiveCall.allReduce(x, x, 1, INT32, SUM);
    Duration limit = Duration.ofMillis(700);
    Duration hour = Duration.ofHours(1);
    Pipeline pipeline = collectives.pipeline().then(call);
    try (CapturedPipeline captured = pipeline.capture()) {
      // Runs with a longer limit or without one must not hide the short limit.
      completes(collectives.run(call, Deadline.NO_LIMIT));
      completes(pipeline.run(hour));
      completes(captured.run(hour));
      assertThat(PipelineKernels.get(x)).containsExactly(8);
      rank.awaitAll();
      if (rank.rank() == 0) {
        // Its timer must not hide the shorter limit of the next run.
        Mono<Void> longer = collectives.pipeline().barrier().run(hour);
        CompletableFuture<Void> before = longer.toFuture();
        fails(
            captured.run(limit),
            Timeout.class,
            "a captured pipeline of 1 steps on rank 0: not done within 700 ms");
        assertThat(before).failsWithin(LONG);
      } else {
        failsJob(rank, Timeout.class);
      }
    }
    refuses(() -> pipeline.run(Duration.ZERO), "limit=PT0S");
  }

  @Test
  void shouldAbortIfOneOfSeveralSubscribersCancelsAndCancelAborts(LocalRank rank) {
    Collectives collectives = lane(rank, CollectivesOptions.DEFAULT.withAbortOnCancel(true));
    DeviceBuffer x = ints(rank.device(), 1);
    if (rank.rank() == 1) {
      failsJob(rank, Aborted.class);
      return;
    }
    PinnedBuffer gate = rank.device().allocatePinned(64);
    Mono<Void> run =
        hold(collectives.pipeline(), rank.device(), gate).allReduce(x, INT32, SUM).run();
    CompletableFuture<Void> first = run.toFuture();
    AtomicReference<Object> heard = new AtomicReference<>();
    Disposable second =
        run.doOnTerminate(() -> heard.set("terminated"))
            .subscribe(null, heard::set, () -> heard.set("completed"));
    CompletableFuture<Void> third = run.toFuture();
    second.dispose();
    for (CompletableFuture<Void> other : List.of(first, third)) {
      fails(other, Aborted.class, "a pipeline of 2 steps was cancelled by rank 0");
    }
    assertThat(heard).as("who has cancelled hears nothing").hasValue(null);
    release(gate);
  }
}
