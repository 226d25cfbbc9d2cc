// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.device.cuda.EngineMemory;
import io.fluxccl.device.cuda.EngineStream;
import io.fluxccl.gpu.TestKernels;
import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;
import java.util.Random;
import java.util.function.IntUnaryOperator;
import reactor.core.publisher.Mono;

/** Collectives on an engine's memory and streams; each rank checks all results. */
final class EngineCollectives {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final Collectives collectives;
  private final CudaDevice device;
  private final int rank;
  private final int n;

  EngineCollectives(Collectives collectives) {
    this.collectives = collectives;
    this.device = (CudaDevice) collectives.communicator().device();
    this.rank = collectives.communicator().bootstrap().rank();
    this.n = collectives.communicator().bootstrap().nRanks();
  }

  private static int value(int of, int i) {
    return of * 1_000_003 + i * 7 + 1;
  }

  private static int[] array(int length, IntUnaryOperator value) {
    int[] array = new int[length];
    Arrays.setAll(array, value);
    return array;
  }

  private void run(Mono<Void> operation) {
    operation.block(LONG);
  }

  private static void check(String what, CudaBuffer buffer, int length, IntUnaryOperator value) {
    int[] found = IntView.of(buffer.slice(0, length * 4L)).toArray();
    assertThat(Arrays.mismatch(found, array(length, value))).as(what).isEqualTo(-1);
  }

  /** Does every collective on memory of the engine, and the all-reduce by every algorithm. */
  void doAll(EngineMemory engine, EngineMemory.Kind kind, int count, boolean registered) {
    CudaBuffer memory = engine.allocate(kind, RandomCollectiveCase.memory(n, 4 * count));
    Registration registration = registered ? collectives.register(memory).join() : null;
    if (registered) {
      assertThat(registration.stagedReason().isEmpty()).isEqualTo(kind.isShareable);
    }
    for (boolean inPlace : new boolean[] {false, true}) {
      for (Collective which : Collective.plain()) {
        check(which, count, inPlace, memory);
      }
      CudaBuffer x = memory.slice(0, 4L * count);
      for (String algorithm :
          collectives.algorithmsFor(CollectiveCall.allReduce(x, x, count, INT32, SUM))) {
        collectives.prefer(Collective.ALL_REDUCE, Optional.of(algorithm));
        check(Collective.ALL_REDUCE, count, inPlace, memory);
      }
      collectives.prefer(Collective.ALL_REDUCE, Optional.empty());
    }
    if (registered) {
      registration.close();
    }
    memory.close();
  }

  private void check(Collective which, int count, boolean inPlace, CudaBuffer memory) {
    RandomCollectiveCase.Run run =
        new RandomCollectiveCase(new Random(count), n, which, 4 * count)
            .with(INT32, count, inPlace)
            .on(rank, memory);
    run(collectives.barrier().then(collectives.run(run.call)));
    run(collectives.barrier());
    run.verify();
  }

  private static int sum(int ranks, int i) {
    int sum = 0;
    for (int of = 0; of < ranks; of++) {
      sum += value(of, i);
    }
    return sum;
  }

  /** If one rank can't share its buffer, all ranks stage theirs. */
  void agreeOnWhatIsStaged(EngineMemory engine) {
    EngineMemory.Kind kind = rank == 0 ? EngineMemory.Kind.POOL : EngineMemory.Kind.LARGE_BLOCK;
    CudaBuffer x = engine.allocate(kind, 1 << 20);
    CollectiveCall call = CollectiveCall.allReduce(x, x, 1 << 18, INT32, SUM);
    String before = collectives.algorithmFor(call);
    try (Registration registration = collectives.register(x).join()) {
      assertThat(registration.stagedReason())
          .hasValueSatisfying(why -> assertThat(why).startsWith("rank 0: ").contains("pool"));
      assertThat(registration.addressOn(1 - rank)).isZero();
      assertThat(collectives.algorithmFor(call)).isEqualTo(before);
      IntView.of(x).put(array(1 << 18, i -> value(rank, i)));
      run(collectives.run(call));
      check("all-reduce", x, 1 << 18, i -> sum(n, i));
    }
    x.close();
  }

  /**
   * An engine's graph with collectives between its own kernels, replayed with other work between.
   *
   * @param count ints of the buffer
   * @param replays how often
   * @param captureMode of {@link EngineStream}; not the global one where ranks are threads
   */
  void replay(EngineMemory engine, int count, boolean registered, int replays, int captureMode) {
    TestKernels.prepare(device, "pipeline");
    CudaBuffer x = engine.allocate(EngineMemory.Kind.LARGE_BLOCK, 4L * count);
    CudaBuffer own = engine.allocate(EngineMemory.Kind.SMALL_BLOCK, 16L + 4L * count);
    own.upload(0, new byte[16]);
    x.upload(0, new byte[4 * count]);
    EngineStream owner = new EngineStream(device);
    CudaStream stream = device.wrapStream(owner.address());
    try (Collectives lane = collectives.lane(stream).join()) {
      if (registered) {
        lane.register(x).join();
      }
      addTo(stream, x, 0); // the first launch, before the capture
      run(lane.allReduce(x, INT32, MAX));
      owner.beginCapture(captureMode);
      owner.add(own.address(), 1);
      addTo(stream, x, rank + 1);
      assertDone(lane.allReduce(x, INT32, MAX));
      owner.copy(own.address() + 16, x.address(), 4L * count);
      assertDone(lane.pipeline().allReduce(x, INT32, MAX).barrier().run());
      owner.add(own.address() + 8, 2);
      owner.endCapture();
      for (int replay = 1; replay <= replays; replay++) {
        owner.replay();
        if (replay % 10 == 0) {
          owner.add(own.address(), 1000);
          addTo(stream, x, 3);
          run(lane.allReduce(x, INT32, MAX));
          check("after replay " + replay, x, count, after(replay));
        }
      }
      owner.await();
      check("at the end", x, count, after(replays));
      int last = n * replays + replays / 10 * 3 - (replays % 10 == 0 ? 3 : 0);
      check("the engine's copy", part(own, 16, count), count, i -> last);
      check("the engine's counts", own, 1, i -> replays + replays / 10 * 1000);
      check("the engine's counts", part(own, 8, 1), 1, i -> 2 * replays);
    }
    stream.close();
    owner.close();
    x.close();
    own.close();
  }

  private IntUnaryOperator after(int replays) {
    return i -> n * replays + replays / 10 * 3;
  }

  private static CudaBuffer part(CudaBuffer of, long offset, int ints) {
    return of.slice(offset, 4L * ints);
  }

  private static void addTo(CudaStream stream, DeviceBuffer x, int summand) {
    stream.launch(
        TestKernels.of("pipeline", "pipeline_scale"),
        4,
        128,
        KernelArgs.of(x, x.size() / 4, 1, summand));
  }

  private static void assertDone(Mono<Void> recorded) {
    assertThat(recorded.toFuture()).isDone().isNotCompletedExceptionally();
  }
}
