// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.reactivestreams.Publisher;
import reactor.core.publisher.BaseSubscriber;

/** Runs whose subscribers cancel before the run is enqueued. */
@Timeout(120)
class CancelBeforeEnqueueTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final SteppedFamily family = new SteppedFamily();
  private final CountDownLatch let = new CountDownLatch(1);
  private final LocalRanks ranks = LocalRanks.of(2);

  @AfterEach
  void close() {
    let.countDown();
    family.step(1000);
    ranks.close();
  }

  /** Creates collectives on both ranks and returns those of rank 0; rank 1 calls nothing. */
  private Collectives collectives(boolean abortOnCancel) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withFamily(family).withAbortOnCancel(abortOnCancel);
    List<CompletableFuture<Collectives>> both =
        ranks.ranks().stream()
            .map(rank -> Collectives.create(rank.communicator(), options))
            .toList();
    both.forEach(CompletableFuture::join);
    return both.get(0).join();
  }

  private void waitToBeLet() {
    try {
      assertThat(let.await(60, TimeUnit.SECONDS)).isTrue();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Thread start(Runnable task, String name) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** Cancels a run that waits while an earlier run is being enqueued. */
  private void cancelWaiting(
      boolean abortOnCancel, int goOn, Function<Collectives, Publisher<?>> what) throws Exception {
    Collectives collectives = collectives(abortOnCancel);
    family.whenEnqueued = this::waitToBeLet;
    CompletableFuture<Void> first = new CompletableFuture<>();
    start(
        () ->
            collectives
                .barrier()
                .subscribe(done -> {}, first::completeExceptionally, () -> first.complete(null)),
        "first");
    await().atMost(LONG).untilAtomic(family.enqueued, org.hamcrest.Matchers.is(1));

    BaseSubscriber<Object> unwanted = new BaseSubscriber<>() {};
    Thread second = start(() -> what.apply(collectives).subscribe(unwanted), "second");
    await().atMost(LONG).until(() -> second.getState() == Thread.State.BLOCKED);
    unwanted.cancel();
    let.countDown();
    second.join(LONG.toMillis());
    assertThat(second.isAlive()).isFalse();

    family.step(2 + goOn);
    assertThat(first).succeedsWithin(LONG);
    assertThat(collectives.barrier().toFuture()).succeedsWithin(LONG);
    assertThat(family.enqueued).as("the first, those that go on, the last").hasValue(2 + goOn);
    ranks.ranks().forEach(rank -> assertThat(rank.communicator().failure()).isNull());
  }

  private DeviceBuffer buffer() {
    return ranks.ranks().get(0).device().allocate(64);
  }

  /** The peers have not cancelled and enqueue their part of the run. */
  @Test
  void shouldStillEnqueueARunIfItIsCancelledWhileQueued() throws Exception {
    DeviceBuffer x = buffer();
    cancelWaiting(false, 1, collectives -> collectives.allReduce(x, INT32, SUM));
  }

  @Test
  void shouldEnqueueOnlyOneChunkIfChunksAreCancelledWhileQueued() throws Exception {
    DeviceBuffer x = buffer();
    CollectiveCall call = CollectiveCall.allReduce(x, x, 16, INT32, SUM);
    cancelWaiting(false, 1, collectives -> collectives.chunked(call, 2, 3));
  }

  @Test
  void shouldNotEnqueueARunCancelledWhileQueuedIfCancelAborts() throws Exception {
    DeviceBuffer x = buffer();
    cancelWaiting(true, 0, collectives -> collectives.allReduce(x, INT32, SUM));
  }

  @Test
  void shouldNotEnqueueChunksCancelledWhileQueuedIfCancelAborts() throws Exception {
    DeviceBuffer x = buffer();
    CollectiveCall call = CollectiveCall.allReduce(x, x, 16, INT32, SUM);
    cancelWaiting(true, 0, collectives -> collectives.chunked(call, 2, 3));
  }
}
