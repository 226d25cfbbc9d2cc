// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.reactivestreams.Subscription;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.SignalType;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;
import reactor.test.subscriber.TestSubscriber;
import reactor.util.context.Context;

/** The effect of demand on chunks: when each chunk is enqueued and emitted. */
@Timeout(120)
class ChunkFluxTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final SteppedFamily family = new SteppedFamily();
  private final LocalRanks ranks = LocalRanks.of(2);
  private Collectives collectives;

  @AfterEach
  void close() {
    family.step(100_000); // completes all pending steps
    ranks.close();
  }

  private Flux<Chunk> chunks(CollectivesOptions options, int chunks, int prefetch) {
    collectives = family.open(ranks, options);
    DeviceBuffer x = ranks.ranks().get(0).device().allocate(chunks * 8L);
    return collectives.chunked(
        CollectiveCall.allReduce(x, x, chunks * 2L, INT32, SUM), 2, prefetch);
  }

  private Flux<Chunk> chunks(int chunks, int prefetch) {
    return chunks(CollectivesOptions.DEFAULT, chunks, prefetch);
  }

  private void enqueuedIs(int expected) {
    await().atMost(LONG).untilAtomic(family.enqueued, org.hamcrest.Matchers.is(expected));
  }

  private Throwable failure() {
    return ranks.ranks().get(0).communicator().failure();
  }

  private static Chunk chunk(int index) {
    return new Chunk(index, 2L * index, 2);
  }

  @Test
  void shouldEnqueueRequestedChunksAndOneMoreIfPrefetchIsOne() {
    StepVerifier.create(chunks(5, 1), 0)
        .expectSubscription()
        .then(() -> enqueuedIs(0))
        .thenRequest(1)
        .then(() -> enqueuedIs(2))
        .then(() -> family.step(2))
        .expectNext(chunk(0))
        .then(() -> enqueuedIs(2))
        // The second is done and waits for demand, which also enqueues the third.
        .thenRequest(1)
        .expectNext(chunk(1))
        .then(() -> enqueuedIs(3))
        .thenRequest(2)
        .then(() -> enqueuedIs(5))
        .then(() -> family.step(3))
        .expectNext(chunk(2), chunk(3))
        .thenRequest(1)
        .expectNext(chunk(4))
        .expectComplete()
        .verify(LONG);
    assertThat(family.enqueued).hasValue(5);
    assertThat(failure()).isNull();
  }

  @Test
  void shouldEnqueueOnlyRequestedChunksIfPrefetchIsZero() {
    family.step(10);
    StepVerifier.create(chunks(4, 0), 1)
        .expectNext(chunk(0))
        .then(() -> enqueuedIs(1))
        .thenRequest(2)
        .expectNext(chunk(1), chunk(2))
        .then(() -> enqueuedIs(3))
        .thenRequest(5)
        .expectNext(chunk(3))
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldNotFillTheDevicesQueueWithoutBounds() {
    int many = 10 * ChunkFlux.MAX_IN_FLIGHT;
    StepVerifier.create(chunks(many, 1))
        .expectSubscription()
        .then(() -> enqueuedIs(ChunkFlux.MAX_IN_FLIGHT))
        .then(() -> family.step(3))
        .expectNext(chunk(0), chunk(1), chunk(2))
        .then(() -> enqueuedIs(ChunkFlux.MAX_IN_FLIGHT + 3))
        .then(() -> family.step(many))
        .expectNextSequence(IntStream.range(3, many).mapToObj(ChunkFluxTest::chunk).toList())
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldCompleteAtOnceWhenThereIsNothing() {
    StepVerifier.create(chunks(1, 1).take(0)).expectComplete().verify(LONG);
    DeviceBuffer x = ranks.ranks().get(0).device().allocate(8);
    StepVerifier.create(collectives.chunked(CollectiveCall.allReduce(x, x, 0, INT32, SUM), 3), 0)
        .expectComplete()
        .verify(LONG);
    assertThat(family.enqueued).hasValue(0);
  }

  /** Returns the signals of a subscriber that only requests on subscription. */
  private static List<Object> signals(Flux<Chunk> chunks, long... requests) {
    List<Object> signals = new CopyOnWriteArrayList<>();
    chunks.subscribe(
        new BaseSubscriber<>() {
          @Override
          protected void hookOnSubscribe(Subscription subscription) {
            Arrays.stream(requests).forEach(subscription::request);
          }

          @Override
          protected void hookOnNext(Chunk chunk) {
            signals.add(chunk);
          }

          @Override
          protected void hookOnError(Throwable failure) {
            signals.add(failure.getClass());
          }

          @Override
          protected void hookOnComplete() {
            signals.add("completed");
          }
        });
    return signals;
  }

  @Test
  void shouldFailTheSubscriberIfDemandIsNotPositive() {
    List<Object> signals = signals(chunks(3, 1), 0, -1, 1);
    assertThat(signals).containsExactly(IllegalArgumentException.class);
    assertThat(family.enqueued).hasValue(0);
    assertThat(failure()).isNull();
  }

  @Test
  void shouldEnqueueNothingWhenCancelledBeforeDemand() {
    StepVerifier.create(chunks(3, 1), 0).expectSubscription().thenCancel().verify(LONG);
    assertThat(family.enqueued).hasValue(0);
    assertThat(failure()).isNull();
  }

  @Test
  void shouldLeaveTheRestUndoneWhenCancelledBetweenChunks() {
    family.step(10);
    StepVerifier.create(chunks(5, 0).take(2))
        .expectNext(chunk(0), chunk(1))
        .expectComplete()
        .verify(LONG);
    assertThat(family.enqueued).hasValue(2);
    assertThat(failure()).isNull();
  }

  @Test
  void shouldFinishChunksInFlightIfCancelled() {
    StepVerifier.create(chunks(5, 2), 1)
        .then(() -> enqueuedIs(3))
        .then(() -> family.step(1))
        .expectNext(chunk(0))
        .thenCancel()
        .verify(LONG);
    CompletableFuture<Void> behind = collectives.barrier().toFuture();
    enqueuedIs(4);
    assertThat(behind).isNotDone();
    family.step(3);
    assertThat(behind).succeedsWithin(LONG);
    assertThat(family.enqueued).hasValue(4);
    assertThat(failure()).isNull();
  }

  @Test
  void shouldFinishChunksInFlightIfDemandIsInvalid() {
    List<Object> signals = signals(chunks(5, 1), 1, -1);
    assertThat(signals).containsExactly(IllegalArgumentException.class);
    family.step(3);
    assertThat(collectives.barrier().toFuture()).succeedsWithin(LONG);
    assertThat(family.enqueued).hasValue(3);
    assertThat(failure()).isNull();
  }

  @Test
  void shouldAbortTheJobIfCancelledAndCancelAborts() {
    StepVerifier.create(chunks(CollectivesOptions.DEFAULT.withAbortOnCancel(true), 5, 1), 1)
        .then(() -> enqueuedIs(2))
        .then(() -> family.step(1))
        .expectNext(chunk(0))
        .thenCancel()
        .verify(LONG);
    String cancelled = "in 5 chunks was cancelled by rank 0";
    assertFailure(Aborted.class, failure(), "chunk 1 of all-reduce", cancelled);
    assertThat(family.enqueued).hasValue(2);
  }

  @Test
  void shouldFailOnceWhenTheJobFails() {
    Flux<Chunk> chunks = chunks(50, 1);
    AtomicInteger errors = new AtomicInteger();
    StepVerifier.create(chunks.doOnError(e -> errors.incrementAndGet()))
        .expectSubscription()
        .then(() -> family.step(1))
        .expectNext(chunk(0))
        .then(() -> ranks.ranks().get(1).communicator().abort(new Aborted(1, "no more")))
        .expectErrorSatisfies(
            e -> assertThat(e).isInstanceOf(Aborted.class).hasMessageContaining("no more"))
        .verify(LONG);
    assertThat(errors).hasValue(1);
    StepVerifier.create(chunks).expectError(Aborted.class).verify(LONG);
  }

  @Test
  void shouldRequestFromWithinASignal() {
    int many = 20_000;
    family.step(many);
    List<Chunk> got = Collections.synchronizedList(new ArrayList<>());
    CompletableFuture<SignalType> done = new CompletableFuture<>();
    chunks(many, 1)
        .subscribe(
            new BaseSubscriber<>() {
              private boolean inside;

              @Override
              protected void hookOnSubscribe(Subscription subscription) {
                request(1);
              }

              @Override
              protected void hookOnNext(Chunk chunk) {
                assertThat(inside).as("one signal at a time").isFalse();
                inside = true;
                got.add(chunk);
                request(1);
                inside = false;
              }

              @Override
              protected void hookFinally(SignalType end) {
                done.complete(end);
              }
            });
    assertThat(done).succeedsWithin(LONG).isEqualTo(SignalType.ON_COMPLETE);
    assertThat(got).isEqualTo(IntStream.range(0, many).mapToObj(ChunkFluxTest::chunk).toList());
  }

  /** Demand, completions and signals race; chunks must not be lost, repeated or reordered. */
  @Test
  void shouldEmitExactlyTheRequestedChunksIfThreadsRequestConcurrently() throws Exception {
    Flux<Chunk> chunks = chunks(3000, 1);
    int threads = 4;
    int each = 200;
    for (int round = 0; round < 20; round++) {
      TestSubscriber<Chunk> subscriber = TestSubscriber.builder().initialRequest(0).build();
      family.enqueued.set(0);
      family.step(threads * each);
      chunks.subscribe(subscriber);
      Flux.range(0, threads)
          .flatMap(
              thread ->
                  Mono.fromRunnable(
                          () -> {
                            for (int i = 0; i < each; i++) {
                              subscriber.request(1);
                            }
                          })
                      .subscribeOn(Schedulers.parallel()))
          .blockLast(LONG);
      await().atMost(LONG).until(() -> subscriber.getReceivedOnNext().size() == threads * each);
      enqueuedIs(threads * each + 1);
      family.step(1); // the prefetched chunk
      assertThat(subscriber.getReceivedOnNext())
          .isEqualTo(IntStream.range(0, threads * each).mapToObj(ChunkFluxTest::chunk).toList());
      assertThat(subscriber.getProtocolErrors()).as("one signal at a time").isEmpty();
      // Once the prefetched chunk is done, no chunk is in flight, so cancel aborts nothing.
      collectives.stream().completion().get(30, TimeUnit.SECONDS);
      collectives.pipeline().run().block(LONG);
      subscriber.cancel();
      assertThat(failure()).isNull();
    }
  }

  @Test
  void shouldKeepDemandOnAnotherScheduler() {
    Scheduler scheduler = Schedulers.newSingle("chunks");
    try {
      StepVerifier.create(
              chunks(CollectivesOptions.DEFAULT.withScheduler(scheduler), 4, 1)
                  .doOnNext(
                      chunk -> assertThat(Thread.currentThread().getName()).startsWith("chunks")),
              1)
          .then(() -> enqueuedIs(2))
          .then(() -> family.step(2))
          .expectNext(chunk(0))
          .then(() -> enqueuedIs(2))
          .thenRequest(Long.MAX_VALUE)
          .then(() -> family.step(2))
          .expectNext(chunk(1), chunk(2), chunk(3))
          .expectComplete()
          .verify(LONG);
    } finally {
      scheduler.dispose();
    }
  }

  @Test
  void shouldFailIfItsSchedulerIsDisposed() {
    Scheduler scheduler = Schedulers.newSingle("chunks");
    Flux<Chunk> chunks = chunks(CollectivesOptions.DEFAULT.withScheduler(scheduler), 4, 1);
    scheduler.dispose();
    StepVerifier.create(chunks)
        .expectError(java.util.concurrent.RejectedExecutionException.class)
        .verify(LONG);
    assertThat(family.enqueued).hasValue(0);
  }

  @Test
  void shouldPropagateTheSubscribersContext() {
    family.step(10);
    StepVerifier.create(
            chunks(2, 1)
                .flatMap(
                    chunk ->
                        Mono.deferContextual(context -> Mono.just((String) context.get("who"))))
                .contextWrite(Context.of("who", "me")))
        .expectNext("me", "me")
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldRefuseCallsThatCannotBeChunked() {
    collectives = family.open(ranks, CollectivesOptions.DEFAULT);
    DeviceBuffer x = ranks.ranks().get(0).device().allocate(64);
    long[] counts = {1, 1};
    for (CollectiveCall whole :
        List.of(
            CollectiveCall.barrier(),
            CollectiveCall.allToAllv(null, counts, null, counts, INT32),
            CollectiveCall.sendReceive(null, 0, 1, null, 0, 1, INT32))) {
      refuses(
          () -> ChunkFlux.ChunkedCall.of(whole, 2), whole.collective().label(), "can't be chunked");
    }
    refuses(() -> collectives.chunked(CollectiveCall.barrier(), 2), "can't be chunked");
    CollectiveCall call = CollectiveCall.allReduce(x, x, 16, INT32, SUM);
    refuses(() -> collectives.chunked(call, 0), "chunks of 0");
    refuses(() -> collectives.chunked(call, 1, ChunkFlux.MAX_IN_FLIGHT), "prefetch=32");
    StepVerifier.create(collectives.chunked(CollectiveCall.allReduce(x, x, 17, INT32, SUM), 2), 0)
        .expectError(InvalidUsage.class)
        .verify(LONG);
    assertThat(family.enqueued).hasValue(0);
  }
}
