// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.reactivestreams.Publisher;
import reactor.core.publisher.BaseSubscriber;

/** Runs whose subscribers cancel before the run is enqueued. */
@Timeout(120)
class CancelBeforeEnqueueTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final SteppedFamily family = new SteppedFamily();
  private final CompletableFuture<Void> let = new CompletableFuture<>();
  private final LocalRanks ranks = LocalRanks.of(2);

  @AfterEach
  void close() {
    let.complete(null);
    family.step(1000);
    ranks.close();
  }

  private static Thread start(Runnable task, String name) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** Peers that have not cancelled enqueue their part of the run, and only one chunk. */
  @ParameterizedTest(name = "abort on cancel: {0}, chunks: {1}")
  @CsvSource({"false, false", "false, true", "true, false", "true, true"})
  void shouldEnqueueARunCancelledWhileQueuedUnlessCancelAborts(
      boolean abortOnCancel, boolean isChunked) throws Exception {
    Collectives collectives =
        family.open(ranks, CollectivesOptions.DEFAULT.withAbortOnCancel(abortOnCancel));
    DeviceBuffer x = ranks.ranks().get(0).device().allocate(64);
    CollectiveCall call = CollectiveCall.allReduce(x, x, 16, INT32, SUM);
    family.whenEnqueued = let::join;
    CompletableFuture<Void> first = new CompletableFuture<>();
    start(
        () ->
            collectives
                .barrier()
                .subscribe(done -> {}, first::completeExceptionally, () -> first.complete(null)),
        "first");
    await().atMost(LONG).untilAtomic(family.enqueued, org.hamcrest.Matchers.is(1));

    BaseSubscriber<Object> unwanted = new BaseSubscriber<>() {};
    Publisher<?> waiting = isChunked ? collectives.chunked(call, 2, 3) : collectives.run(call);
    Thread second = start(() -> waiting.subscribe(unwanted), "second");
    await().atMost(LONG).until(() -> second.getState() == Thread.State.BLOCKED);
    unwanted.cancel();
    let.complete(null);
    second.join(LONG.toMillis());
    assertThat(second.isAlive()).isFalse();

    int enqueued = abortOnCancel ? 0 : 1;
    family.step(2 + enqueued);
    assertThat(first).succeedsWithin(LONG);
    assertThat(collectives.barrier().toFuture()).succeedsWithin(LONG);
    assertThat(family.enqueued).as("the first, the second, the last").hasValue(2 + enqueued);
    ranks.ranks().forEach(rank -> assertThat(rank.communicator().failure()).isNull());
  }
}
