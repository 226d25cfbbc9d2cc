// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.stepserver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** The signals of requests that share steps. */
@Timeout(120)
class BatcherTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int COUNT = 50;
  private static final int ENDLESS = 1_000_000;

  private final List<RankGroup> groups = new ArrayList<>();
  private final List<Mlp> models = new ArrayList<>();
  private final AtomicInteger steps = new AtomicInteger();
  private Batcher batcher;

  @BeforeEach
  void start() {
    groups.addAll(RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST)));
    List<StepLoop> loops = new ArrayList<>();
    for (RankGroup group : groups) {
      Mlp model = new Mlp(group);
      models.add(model);
      loops.add(StepLoop.of(group, Mlp.MAX_BATCH, 1, batch -> run(group, model, batch)));
    }
    loops.get(1).follow().subscribe(null, failure -> {});
    batcher = new Batcher(loops.get(0), models.get(0));
  }

  private Mono<Void> run(RankGroup group, Mlp model, byte[] batch) {
    if (group.rank() == 0) {
      steps.incrementAndGet();
    }
    return model.step(batch);
  }

  @AfterEach
  void stop() {
    models.forEach(Mlp::close);
    RankGroup.closeAll(groups);
  }

  private Flux<Byte> tokens(int prompt, int count) {
    return batcher.generate((byte) prompt, count).orElseThrow();
  }

  private List<Byte> alone(int prompt) {
    return tokens(prompt, COUNT).collectList().block(LONG);
  }

  @Test
  void shouldEmitTheTokensOfARequestAndComplete() {
    List<Byte> expected = alone(9);
    assertThat(expected).hasSize(COUNT);
    StepVerifier.create(tokens(9, COUNT))
        .expectNextSequence(expected)
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldShareStepsAmongRequests() {
    List<Byte> first = alone(1);
    List<Byte> second = alone(2);
    int before = steps.get();
    StepVerifier.create(
            Flux.zip(
                tokens(1, COUNT).collectList(),
                tokens(2, COUNT).collectList(),
                tokens(1, COUNT).collectList()))
        .assertNext(
            all -> {
              assertThat(all.getT1()).isEqualTo(first);
              assertThat(all.getT2()).isEqualTo(second);
              assertThat(all.getT3()).isEqualTo(first);
            })
        .expectComplete()
        .verify(LONG);
    assertThat(steps.get() - before).isLessThan(3 * COUNT);
  }

  @Test
  void shouldKeepTokensForASubscriberThatRequestsThemLater() {
    List<Byte> expected = alone(3);
    Flux<Byte> slow = tokens(3, COUNT);
    StepVerifier.create(slow, 0)
        .expectSubscription()
        .then(() -> assertThat(alone(3)).isEqualTo(expected)) // the other request is not delayed
        .thenRequest(2)
        .expectNextSequence(expected.subList(0, 2))
        .thenRequest(Long.MAX_VALUE)
        .expectNextSequence(expected.subList(2, COUNT))
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldFreeThePlaceOfASubscriberThatCancels() {
    for (int i = 0; i < 2 * Mlp.MAX_BATCH; i++) {
      StepVerifier.create(tokens(i, ENDLESS)).expectNextCount(3).thenCancel().verify(LONG);
    }
    StepVerifier.create(tokens(4, COUNT)).expectNextCount(COUNT).expectComplete().verify(LONG);
    int ended = steps.get();
    assertThat(alone(4)).hasSize(COUNT);
    assertThat(steps.get() - ended).isBetween(COUNT, COUNT + 1);
  }

  @Test
  void shouldRefuseARequestIfTooManyWait() {
    List<Flux<Byte>> running = new ArrayList<>();
    Optional<Flux<Byte>> next = batcher.generate((byte) 1, ENDLESS);
    for (; next.isPresent(); next = batcher.generate((byte) 1, ENDLESS)) {
      running.add(next.get());
    }
    assertThat(running)
        .hasSizeBetween(Batcher.MAX_WAITING + 1, Batcher.MAX_WAITING + Mlp.MAX_BATCH);
    running.forEach(
        each -> StepVerifier.create(each.limitRequest(0)).expectComplete().verify(LONG));
    await().until(() -> batcher.generate((byte) 1, 1).isPresent());
  }

  @Test
  void shouldFailEachRequestOnceIfTheJobFails() {
    Flux<Byte> first = tokens(1, ENDLESS);
    Flux<Byte> second = tokens(2, ENDLESS);
    groups.get(1).communicator().abort(Aborted.of(1, "rank 1 is broken"));
    for (Flux<Byte> each : List.of(first, second)) {
      StepVerifier.create(each.ignoreElements())
          .expectErrorMatches(
              reason -> batcher.hasFailed() && reason.getMessage().contains("rank 1 is broken"))
          .verify(LONG);
    }
    StepVerifier.create(tokens(3, 1)).expectError(Aborted.class).verify(LONG);
  }
}
