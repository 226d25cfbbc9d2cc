// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.PipelineKernels.get;
import static io.fluxccl.collective.PipelineKernels.hold;
import static io.fluxccl.collective.PipelineKernels.ints;
import static io.fluxccl.collective.PipelineKernels.put;
import static io.fluxccl.collective.PipelineKernels.release;
import static io.fluxccl.collective.PipelineKernels.scale;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Pipelines of two ranks, on the host device or on GPUs. */
@Timeout(180)
@OnRanks(seconds = 120)
abstract class PipelineContract implements OnRanks.Opening {

  @Override
  public Collectives open(LocalRank rank) {
    PipelineKernels.prepare(rank.device());
    return rank.collectives();
  }

  static void await(CompletableFuture<?> future) throws Exception {
    future.get(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldDoStepsInOrderAndCompleteOnce(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1 + rank.rank(), 10, 100);
    DeviceBuffer kept = ints(rank.device(), 0, 0, 0);
    PinnedBuffer host = rank.device().allocatePinned(64);
    Pipeline pipeline = scale(collectives.pipeline(), x, 2, 0).allReduce(x, INT32, SUM);
    pipeline = pipeline.copy(kept, 0, x, 0, 12).copy(host, 4, x, 0, 12);
    pipeline = scale(pipeline, x, 1, 1).allReduce(x, INT32, SUM).copy(x, 4, host, 4, 8);
    completes(pipeline.run());
    assertThat(get(kept)).containsExactly(6, 40, 400);
    assertThat(host.buffer().getInt(8)).isEqualTo(40);
    assertThat(get(x)).containsExactly(14, 6, 40);
  }

  @Test
  void shouldEnqueueWorkOfOthersBetweenCollectives(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1 + rank.rank(), 10, 100);
    DeviceBuffer kept = ints(rank.device(), 0, 0, 0);
    AtomicInteger calls = new AtomicInteger();
    Pipeline pipeline =
        collectives
            .pipeline()
            .allReduce(x, INT32, SUM)
            .enqueue(
                "keep",
                stream -> {
                  calls.incrementAndGet();
                  stream.copy(kept, 0, x, 0, 12);
                })
            .allReduce(x, INT32, SUM);
    completes(pipeline.run());
    assertThat(get(kept)).containsExactly(3, 20, 200);
    assertThat(get(x)).containsExactly(6, 40, 400);
    assertThat(calls).hasValue(1);
    try (CapturedPipeline captured = pipeline.capture()) {
      assertThat(calls).hasValue(2);
      completes(captured.run(2));
    }
    assertThat(get(kept)).containsExactly(48, 320, 3200);
    assertThat(get(x)).containsExactly(96, 640, 6400);
    assertThat(calls).hasValue(2);
  }

  @Test
  void shouldOfferEveryCollective(LocalRank rank, Collectives collectives) {
    int me = rank.rank();
    int other = 1 - me;
    DeviceBuffer one = ints(rank.device(), me + 1, me + 3);
    DeviceBuffer two = ints(rank.device(), me + 5, me + 7, me + 9, me + 11);
    List<DeviceBuffer> outs = new ArrayList<>();
    for (int i = 0; i < 11; i++) {
      outs.add(ints(rank.device(), -1, -1, -1, -1));
    }
    Pipeline all =
        collectives
            .pipeline()
            .allReduce(one, outs.get(0), 2, INT32, SUM)
            .allGather(one, outs.get(1), 2, INT32)
            .reduceScatter(two, outs.get(2), 2, INT32, SUM)
            .broadcast(one, outs.get(3), 2, INT32, 1)
            .reduce(one, outs.get(4), 2, INT32, MAX, 1)
            .allToAll(two, outs.get(5), 2, INT32)
            .allToAllv(two, new long[] {1, 2}, outs.get(6), new long[] {me + 1, me + 1}, INT32)
            .gather(one, outs.get(7), 2, INT32, 0)
            .scatter(two, outs.get(8), 2, INT32, 0)
            .sendReceive(one, 2, other, outs.get(9), 2, other, INT32)
            .barrier();
    all = me == 0 ? all.send(one, 2, INT32, 1) : all.recv(outs.get(10), 2, INT32, 0);
    all = all.broadcast(one, 2, INT32, 0);
    completes(all.run());
    assertThat(get(outs.get(0))).startsWith(3, 7);
    assertThat(get(outs.get(1))).containsExactly(1, 3, 2, 4);
    assertThat(get(outs.get(2))).startsWith(me == 0 ? new int[] {11, 15} : new int[] {19, 23});
    assertThat(get(outs.get(3))).startsWith(2, 4);
    assertThat(get(outs.get(4))).startsWith(me == 1 ? new int[] {2, 4} : new int[] {-1, -1});
    assertThat(get(outs.get(5)))
        .containsExactly(me == 0 ? new int[] {5, 7, 6, 8} : new int[] {9, 11, 10, 12});
    assertThat(get(outs.get(6))).startsWith(me == 0 ? new int[] {5, 6} : new int[] {7, 9, 8, 10});
    assertThat(get(outs.get(7)))
        .containsExactly(me == 0 ? new int[] {1, 3, 2, 4} : new int[] {-1, -1, -1, -1});
    assertThat(get(outs.get(8))).startsWith(me == 0 ? new int[] {5, 7} : new int[] {9, 11});
    assertThat(get(outs.get(9))).startsWith(other + 1, other + 3);
    assertThat(get(outs.get(10))).startsWith(me == 1 ? new int[] {1, 3} : new int[] {-1, -1});
    assertThat(get(one)).containsExactly(1, 3);
  }

  @Test
  void shouldEnqueueAllStepsWhileTheFirstStillRuns(LocalRank rank, Collectives collectives)
      throws Exception {
    DeviceBuffer x = ints(rank.device(), 1, 2, 3);
    PinnedBuffer gate = rank.device().allocatePinned(64);
    Pipeline pipeline = hold(collectives.pipeline(), rank.device(), gate);
    for (int i = 0; i < 5; i++) {
      pipeline = scale(pipeline, x, 3, 1).allReduce(x, INT32, MAX);
    }
    AtomicInteger signals = new AtomicInteger();
    CompletableFuture<Void> done =
        pipeline.run().doOnTerminate(signals::incrementAndGet).toFuture();
    // The calls returned although the kernel still waits for the release below.
    assertThat(done).isNotDone();
    assertThat(signals).hasValue(0);
    release(gate);
    await(done);
    assertThat(signals).hasValue(1);
    assertThat(get(x)).containsExactly(364, 607, 850);
  }

  @Test
  void shouldCompleteOnAllRanksIfOneSubscriberCancels(LocalRank rank, Collectives collectives)
      throws Exception {
    // Large enough for an own allocation, which no other buffer keeps alive.
    DeviceBuffer x = rank.device().allocate(1 << 20);
    put(x, 1);
    DeviceBuffer y = ints(rank.device(), 0);
    PinnedBuffer gate = rank.device().allocatePinned(64);
    Pipeline pipeline = hold(collectives.pipeline(), rank.device(), gate);
    CompletableFuture<Void> heard = new CompletableFuture<>();
    Disposable subscription =
        scale(pipeline, x, 3, 1)
            .allReduce(x, INT32, SUM)
            .run(2)
            .subscribe(null, heard::completeExceptionally, () -> heard.complete(null));
    CompletableFuture<Void> behind =
        collectives.pipeline().copy(y, 0, x, 0, 4).barrier().run().toFuture();
    if (rank.rank() == 0) {
      subscription.dispose();
    }
    x.close();
    assertThat(users(x)).as("users while the runs wait").isPositive();
    release(gate);
    await(behind);
    assertThat(get(y)).containsExactly((4 * 2 * 3 + 1) * 2);
    assertThat(heard.isDone()).isEqualTo(rank.rank() != 0);
    Awaitility.await().untilAsserted(() -> assertThat(users(x)).isZero());
  }

  @Test
  void shouldCompleteWithoutAStep(Collectives collectives) {
    completes(collectives.pipeline().run());
    completes(collectives.pipeline().run(3));
    try (CapturedPipeline nothing = collectives.pipeline().capture()) {
      completes(nothing.run());
    }
  }

  @Test
  void shouldReplayACapturedPipeline(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1, 2, 3);
    Pipeline pipeline = scale(collectives.pipeline(), x, 3, 1).allReduce(x, INT32, MAX);
    try (CapturedPipeline captured = pipeline.capture()) {
      assertThat(get(x)).as("capturing does nothing").containsExactly(1, 2, 3);
      completes(captured.run());
      assertThat(get(x)).containsExactly(4, 7, 10);
      completes(captured.run(2));
      assertThat(get(x)).containsExactly(40, 67, 94);
      // As a step of another pipeline, captured or not.
      Pipeline longer = scale(collectives.pipeline().then(captured), x, 1, 1);
      completes(longer.run());
      assertThat(get(x)).containsExactly(122, 203, 284);
      try (CapturedPipeline all = longer.capture()) {
        completes(all.run());
        assertThat(get(x)).containsExactly(368, 611, 854);
      }
    }
  }

  @Test
  void shouldKeepBuffersAllocatedWhileCaptured(LocalRank rank, Collectives collectives) {
    // Large enough for an own allocation, which no other buffer keeps alive.
    DeviceBuffer in = rank.device().allocate(1 << 20);
    DeviceBuffer out = rank.device().allocate(1 << 20);
    CapturedPipeline captured =
        collectives
            .pipeline()
            .allReduce(in, out, 1 << 18, INT32, SUM)
            .allReduce(out.slice(0, 1 << 19), INT32, SUM)
            .allReduce(in, out, 1 << 18, INT32, SUM)
            .capture();
    completes(captured.run());
    in.close();
    out.close();
    assertThat(users(in)).as("users of the input").isPositive();
    assertThat(users(out)).as("users of the output").isPositive();
    completes(captured.run(2));
    rank.awaitAll();
    captured.close();
    Awaitility.await().untilAsserted(() -> assertThat(users(in)).isZero());
    Awaitility.await().untilAsserted(() -> assertThat(users(out)).isZero());
    DeviceBuffer closed = in;
    refuses(() -> collectives.pipeline().allReduce(closed, INT32, SUM).capture(), "closed");
    assertThat(rank.communicator().failure()).isNull();
  }

  @Test
  void shouldReleaseBuffersIfCaptureFails(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(1 << 20);
    int before = users(x);
    // The block is too large, which only the launch detects.
    Pipeline broken = scale(collectives.pipeline().allReduce(x, INT32, SUM), x, 1, 0, 1 << 20);
    refuses(broken::capture);
    Awaitility.await().untilAsserted(() -> assertThat(users(x)).isEqualTo(before));
    x.close();
  }

  /** Returns the number of users of a buffer's memory. */
  static int users(DeviceBuffer buffer) {
    return buffer instanceof CudaBuffer
        ? ((CudaBuffer) buffer).allocation().users()
        : ((HostBuffer) buffer).segment().users();
  }

  @Test
  void shouldReplayForManySubscribersAtOnce(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 0, 0);
    try (CapturedPipeline captured =
        scale(collectives.pipeline(), x, 1, 1).allReduce(x, INT32, MAX).capture()) {
      Mono<Void> some =
          Flux.range(0, 50).flatMap(i -> captured.run().subscribeOn(Schedulers.parallel())).then();
      completes(Mono.when(some, some));
      assertThat(get(x)).containsExactly(100, 100);
      Mono<Void> run = captured.run();
      completes(run.repeat(9).then());
      assertThat(get(x)).containsExactly(110, 110);
    }
  }

  @Test
  void shouldRefuseToReplayIfAResourceIsClosed(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(1 << 10);
    Registration registration = collectives.register(x).join();
    CapturedPipeline captured =
        collectives.pipeline().allReduce(x.slice(0, 512), INT32, SUM).capture();
    completes(captured.run());
    rank.awaitAll();
    registration.close();
    fails(captured.run(), InvalidUsage.class, "registration 0", "capture it again");
    captured.close();
    captured.close();
    shouldRefuse(captured.run(), "captured pipeline of 1 steps: closed");
    // A pipeline that contains it enqueues none of its steps.
    shouldRefuse(collectives.pipeline().barrier().then(captured).run(), "captured pipeline");
    completes(collectives.barrier());
    CapturedPipeline other = collectives.pipeline().barrier().capture();
    rank.awaitAll();
    collectives.close();
    shouldRefuse(other.run(), "closed");
    refuses(() -> collectives.pipeline().capture());
    assertThat(rank.communicator().failure()).isNull();
    rank.awaitAll();
  }

  @Test
  void shouldRefuseToReplayCopiesOfPinnedMemoryThatIsClosed(
      LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1, 2);
    PinnedBuffer out = rank.device().allocatePinned(64);
    PinnedBuffer in = rank.device().allocatePinned(64);
    CapturedPipeline copiesOut = collectives.pipeline().copy(out, 0, x, 0, 8).capture();
    CapturedPipeline copiesIn = collectives.pipeline().copy(x, 0, in, 0, 8).capture();
    completes(copiesOut.run());
    out.close();
    shouldRefuse(copiesOut.run(), "pinned memory");
    shouldRefuse(collectives.pipeline().barrier().then(copiesOut).run(), "pinned memory");
    in.buffer().putInt(0, 7);
    completes(copiesIn.run());
    assertThat(get(x)).startsWith(7);
    in.close();
    shouldRefuse(copiesIn.run(), "pinned memory");
    assertThat(rank.communicator().failure()).isNull();
  }

  private static void shouldRefuse(Mono<Void> run, String why) {
    fails(run, InvalidUsage.class, why);
  }

  @Test
  void shouldCheckAllStepsBeforeEnqueueingTheFirst(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 1, 2);
    PinnedBuffer host = rank.device().allocatePinned(8);
    Pipeline begun = scale(collectives.pipeline(), x, 5, 0).allReduce(x, INT32, SUM);
    shouldRefuse(begun.allReduce(x, x, 3, INT32, SUM).run(), "count=3");
    shouldRefuse(begun.broadcast(x, 1, INT32, 2).run(), "root=2");
    shouldRefuse(begun.copy(x, 4, x, 0, 8).run(), "target range offset=4");
    shouldRefuse(begun.copy(host, 4, x, 0, 8).run(), "target range offset=4");
    shouldRefuse(begun.copy(x, 0, host, -1, 8).run(), "source range offset=-1");
    refuses(() -> begun.copy(x, 4, x, 0, 8).capture());
    refuses(() -> begun.run(-1));
    assertThat(rank.communicator().failure()).isNull();
    assertThat(get(x)).as("nothing of it was done").containsExactly(1, 2);
    completes(begun.run());
    assertThat(get(x)).containsExactly(10, 20);
  }

  @Test
  void shouldRefuseStepsOfAnotherLane(LocalRank rank, Collectives collectives) {
    try (Collectives other = collectives.lane("other").join();
        CapturedPipeline captured = other.pipeline().barrier().capture()) {
      Pipeline pipeline = collectives.pipeline();
      refuses(() -> pipeline.then(other.pipeline()), "after()");
      refuses(() -> pipeline.then(captured));
      completes(pipeline.then(collectives.pipeline().barrier()).run());
      rank.awaitAll();
      other.close();
      shouldRefuse(pipeline.after(other.pipeline()).run(), "the other lane is closed");
    }
  }

  @Test
  void shouldOverlapLanesExceptAtExplicitWaits(LocalRank rank, Collectives collectives)
      throws Exception {
    try (Collectives other = collectives.lane("other").join()) {
      DeviceBuffer x = ints(rank.device(), 1, 2);
      DeviceBuffer y = ints(rank.device(), 5);
      PinnedBuffer gate = rank.device().allocatePinned(64);
      Pipeline slow = hold(other.pipeline(), rank.device(), gate);
      slow = scale(slow, x, 10, 0).allReduce(x, INT32, SUM);
      Pipeline fast = collectives.pipeline().allReduce(y, INT32, SUM);
      // The wait is between the steps: earlier steps do not wait.
      Pipeline both =
          scale(fast.copy(y, 0, y, 0, 4).after(slow, fast, slow), x, 1, 1).allReduce(x, INT32, SUM);
      CompletableFuture<Void> first = slow.run().toFuture();
      completes(fast.run());
      assertThat(get(y)).containsExactly(10);
      CompletableFuture<Void> behind = both.run().toFuture();
      assertThat(behind).isNotDone();
      assertThat(first).isNotDone();
      release(gate);
      await(behind);
      await(first); // the pipeline waited for it, but each future completes separately
      assertThat(get(x)).containsExactly(42, 82);
      assertThat(get(y)).containsExactly(20);
      try (CapturedPipeline captured = both.capture()) {
        gate.buffer().putLongRelease(0, 0);
        first = slow.run().toFuture();
        behind = captured.run().toFuture();
        assertThat(behind).isNotDone();
        release(gate);
        await(behind);
        assertThat(get(x)).containsExactly(1682, 3282);
      }
      rank.awaitAll();
    }
  }

  @Test
  void shouldQueueUpRunsFromManyThreads(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = ints(rank.device(), 0);
    Pipeline pipeline = scale(collectives.pipeline(), x, 1, 1).allReduce(x, INT32, MAX);
    pipeline = scale(pipeline, x, 1, 2);
    Mono<Void> run = pipeline.run();
    completes(Flux.range(0, 200).flatMap(i -> run.subscribeOn(Schedulers.parallel()), 200).then());
    assertThat(get(x)).containsExactly(600);
  }
}
