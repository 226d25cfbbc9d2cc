// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.SUM;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** Pipelines with collectives of several groups: ranks 0+1 and 2+3, and all four. */
@Timeout(120)
class SubGroupPipelinesTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final List<RankGroup> job =
      RankGroup.local(4, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
  private final List<RankGroup> pairs = new ArrayList<>();
  private final List<DeviceBuffer> buffers = new ArrayList<>();

  @BeforeEach
  void split() {
    job.stream()
        .map(each -> each.split("pair", each.rank() / 2, 0))
        .toList()
        .forEach(each -> pairs.add(each.join().orElseThrow()));
    for (RankGroup each : job) {
      buffers.add(each.device().allocate(256 * Float.BYTES));
    }
    fill();
  }

  @AfterEach
  void close() {
    RankGroup.closeAll(job);
    buffers.forEach(DeviceBuffer::close);
  }

  private void fill() {
    for (int rank = 0; rank < 4; rank++) {
      FloatView.of(buffers.get(rank)).put(0, rank);
    }
  }

  private List<Float> firsts() {
    return buffers.stream().map(each -> FloatView.of(each).get(0)).toList();
  }

  private CollectiveCall sum(int rank) {
    return CollectiveCall.allReduce(buffers.get(rank), buffers.get(rank), 256, FLOAT32, SUM);
  }

  /** Sums within the pair, then over all ranks, then within the pair again. */
  private Pipeline sums(int rank) {
    Collectives pair = pairs.get(rank).collectives();
    return job.get(rank).pipeline().then(pair, sum(rank)).then(sum(rank)).then(pair, sum(rank));
  }

  private static void verify(IntFunction<Mono<Void>> runs) {
    List<Mono<Void>> all = new ArrayList<>();
    for (int rank = 0; rank < 4; rank++) {
      all.add(runs.apply(rank));
    }
    StepVerifier.create(Mono.when(all)).expectComplete().verify(LONG);
  }

  @Test
  void shouldRunCollectivesOfSeveralGroupsInOrder() {
    verify(rank -> sums(rank).run());
    assertThat(firsts()).containsExactly(24f, 24f, 24f, 24f);
    verify(rank -> pairs.get(rank).collectives().run(sum(rank)));
    assertThat(firsts()).containsExactly(48f, 48f, 48f, 48f);
  }

  @Test
  void shouldKeepTheOrderOfTheOtherLane() {
    // Without a wait in between: 1, 5 in the pairs; 6 or 10 twice, and so on.
    verify(
        rank ->
            Mono.when(
                pairs.get(rank).collectives().run(sum(rank)),
                sums(rank).run(2),
                pairs.get(rank).collectives().run(sum(rank))));
    // pair: 1|5; run: 2|10, 24, 48; run: 96, 384, 768; pair: 1536
    assertThat(firsts()).containsExactly(1536f, 1536f, 1536f, 1536f);
  }

  @Test
  void shouldRunCollectivesOfSeveralGroupsInACapturedPipeline() {
    List<CapturedPipeline> captured = new ArrayList<>();
    for (int rank = 0; rank < 4; rank++) {
      captured.add(sums(rank).capture());
    }
    verify(rank -> captured.get(rank).run());
    assertThat(firsts()).containsExactly(24f, 24f, 24f, 24f);
    fill();
    verify(rank -> captured.get(rank).run(2));
    assertThat(firsts()).containsExactly(384f, 384f, 384f, 384f);
    captured.forEach(CapturedPipeline::close);
  }

  @Test
  void shouldRunPipelinesThatUseEachOthersLanes() {
    List<Mono<Void>> all = new ArrayList<>();
    for (int round = 0; round < 50; round++) {
      for (int rank = 0; rank < 4; rank++) {
        Collectives whole = job.get(rank).collectives();
        CollectiveCall barrier = CollectiveCall.barrier();
        all.add(sums(rank).run());
        all.add(pairs.get(rank).pipeline().then(whole, barrier).barrier().run());
      }
    }
    StepVerifier.create(Mono.when(all)).expectComplete().verify(LONG);
  }

  @Test
  void shouldNameTheLanesIfARingOfWaitsTimesOut() {
    Collectives whole = job.get(0).collectives();
    Collectives pair = pairs.get(1).collectives();
    Duration limit = Duration.ofSeconds(2);
    List<Mono<Void>> all = new ArrayList<>();
    // Rank 0 calls the whole group first, rank 1 the pair: neither reaches its second call.
    all.add(whole.pipeline().barrier().then(pairs.get(0).collectives(), sum(0)).run(limit));
    all.add(
        pair.pipeline()
            .allReduce(buffers.get(1), FLOAT32, SUM)
            .then(job.get(1).collectives(), CollectiveCall.barrier())
            .run(LONG)); // rank 0 is the first whose time has elapsed
    for (int rank = 2; rank < 4; rank++) {
      all.add(job.get(rank).collectives().barrier());
    }
    List<CompletableFuture<Throwable>> failures =
        all.stream().map(each -> each.toFuture().handle((done, failure) -> failure)).toList();
    List<Throwable> found = failures.stream().map(CompletableFuture::join).toList();
    assertThat(found.get(0))
        .isInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("a pipeline of 2 steps of ")
        .hasMessageContaining("pair tag=")
        .hasMessageContaining("in this order on every rank?");
    assertThat(((FluxCclException) found.get(0)).rank()).isNotNegative();
  }

  @Test
  void shouldRefuseCollectivesOfAnotherJob() {
    List<RankGroup> other = RankGroup.local(1, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    assertThatThrownBy(() -> job.get(0).pipeline().then(other.get(0).collectives(), sum(0)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("another job or device");
    other.get(0).close();
  }

  @Test
  void shouldRefuseARunWhenTheOtherLaneIsClosed() {
    Mono<Void> run = sums(0).run();
    pairs.get(0).collectives().close();
    StepVerifier.create(run).expectError(InvalidUsage.class).verify(LONG);
    assertThat(job.get(0).communicator().failure()).isNull();
  }

  @Test
  void shouldEndARunWhenARankOfTheOtherLaneLeaves() {
    Mono<Void> run = sums(0).run();
    pairs.get(1).collectives().close();
    StepVerifier.create(run)
        .expectErrorSatisfies(
            failure ->
                assertThat(failure)
                    .isInstanceOf(FluxCclException.class)
                    .hasMessageContaining("rank 1 left"))
        .verify(LONG);
  }

  @Test
  void shouldEndARunWhenTheOtherGroupAborts() {
    Mono<Void> run = sums(0).run().doOnSubscribe(begun -> abort());
    StepVerifier.create(run)
        .expectErrorSatisfies(failure -> assertThat(failure).hasMessageContaining("on purpose"))
        .verify(LONG);
  }

  private void abort() {
    pairs.get(1).communicator().abort(new Aborted(1, "on purpose"));
  }
}
