// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** The code of README.md and of docs/reference. */
@Timeout(120)
@Tag("jdk")
class ReadmeTest {
  private static final Duration LIMIT = Duration.ofSeconds(60);

  private static final Executor MAY_BLOCK = Schedulers.boundedElastic()::schedule;

  private final AtomicInteger runs = new AtomicInteger();

  @Test
  void shouldCaptureAStep() {
    List<RankGroup> job = RankGroup.local(1, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    RankGroup group = job.get(0);
    Kernel attention = HostKernel.of("attention", (thread, args) -> runs.incrementAndGet());
    Kernel mlp = HostKernel.of("mlp", (thread, args) -> runs.incrementAndGet());
    int grid = 1;
    int block = 1;
    KernelArgs args = KernelArgs.NONE;
    try (DeviceBuffer hidden = group.device().allocate(64)) {
      CapturedPipeline step =
          group
              .pipeline()
              .launch(attention, grid, block, args)
              .allReduce(hidden, DataType.FLOAT16, ReduceOp.SUM)
              .launch(mlp, grid, block, args)
              .allReduce(hidden, DataType.FLOAT16, ReduceOp.SUM)
              .capture();
      Mono<Void> forward = step.run();
      runs.set(0);
      forward.block(LIMIT);
      assertThat(runs).hasValue(2);
      step.close();
    } finally {
      RankGroup.closeAll(job);
    }
  }

  private Mono<Void> serve(RankGroup group) {
    runs.incrementAndGet();
    return group.collectives().barrier();
  }

  @Test
  void shouldServeGenerations() {
    RankGroup.generations(JoinOptions.fromEnvironment().withLeastRanks(1))
        .switchMap(
            group ->
                group
                    .run(serve(group))
                    .onErrorResume(FluxCclException.class, failure -> Mono.empty()))
        .blockLast();
    assertThat(runs).hasValue(1);
  }

  @Test
  void shouldShrinkToLiveRanks() {
    ProcessRanks.Builder ranks = TestJvms.of(3, ReadmeTest.class);
    List<CompletableFuture<RankGroup>> joining =
        IntStream.range(0, 3)
            .mapToObj(rank -> ranks.joinOptions(rank).withDevice(DeviceChoice.HOST))
            .map(RankGroup::join)
            .toList();
    List<RankGroup> job = joining.stream().map(CompletableFuture::join).toList();
    job.get(0).communicator().abort(new RemoteFailure(2, "rank 2 plays dead"));
    List<CompletableFuture<Void>> shrinking =
        job.subList(0, 2).stream()
            .map(each -> CompletableFuture.runAsync(() -> shrink(each), MAY_BLOCK))
            .toList();
    shrinking.forEach(CompletableFuture::join);
    job.get(2).close();
    assertThat(runs).hasValue(2);
  }

  private void shrink(RankGroup group) {
    group.communicator().failed().join();
    RankGroup next = group.shrink().join();
    assertThat(next.nRanks()).isEqualTo(2);
    next.collectives().barrier().block(LIMIT);
    runs.incrementAndGet();
    next.close();
  }
}
