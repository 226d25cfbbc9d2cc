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
import java.util.List;
import java.util.Optional;
import java.util.function.IntBinaryOperator;
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

  /** Every collective, on buffers of one kind of memory. */
  void doAll(EngineMemory engine, EngineMemory.Kind kind, int count, boolean registered) {
    long bytes = 4L * n * count;
    CudaBuffer in = engine.allocate(kind, bytes);
    CudaBuffer out = engine.allocate(kind, bytes);
    List<Registration> registrations =
        registered
            ? List.of(collectives.register(in).join(), collectives.register(out).join())
            : List.of();
    registrations.forEach(
        each -> assertThat(each.stagedReason().isEmpty()).isEqualTo(kind.isShareable));
    allReduceByEveryAlgorithm(in, out, count);
    int share = rank * count;
    fill(in, out, count);
    run(collectives.allGather(in, out, count, INT32));
    check("all-gather", out, n * count, i -> value(i / count, i % count));
    fill(in, out, n * count);
    run(collectives.reduceScatter(in, out, count, INT32, MAX));
    check("reduce-scatter", out, count, i -> value(n - 1, share + i));
    run(collectives.allToAll(in, out, count, INT32));
    check("all-to-all", out, n * count, i -> value(i / count, share + i % count));
    run(collectives.scatter(in, out, count, INT32, n - 1));
    check("scatter", out, count, i -> value(n - 1, share + i));
    fill(in, out, count);
    run(collectives.broadcast(in, out, count, INT32, n - 1));
    check("broadcast", out, count, i -> value(n - 1, i));
    run(collectives.reduce(in, out, count, INT32, MAX, 0));
    check("reduce", out, rank == 0 ? count : 0, i -> value(n - 1, i));
    run(collectives.gather(in, out, count, INT32, 0));
    check("gather", out, rank == 0 ? n * count : 0, i -> value(i / count, i % count));
    int next = (rank + 1) % n;
    int before = (rank + n - 1) % n;
    run(collectives.sendReceive(in, count, next, out, count, before, INT32));
    check("send-receive", out, count, i -> value(before, i));
    run(collectives.broadcast(in, count, INT32, 0)); // in place
    check("broadcast in place", in, count, i -> value(0, i));
    registrations.forEach(Registration::close);
    in.close();
    out.close();
  }

  private void fill(CudaBuffer in, CudaBuffer out, int length) {
    IntView.of(in.slice(0, length * 4L)).put(array(length, i -> value(rank, i)));
    out.upload(0, new byte[(int) out.size()]);
  }

  private void allReduceByEveryAlgorithm(CudaBuffer in, CudaBuffer out, int count) {
    CollectiveCall call = CollectiveCall.allReduce(in, out, count, INT32, SUM);
    IntBinaryOperator sum = (ranks, i) -> sum(ranks, i);
    for (String algorithm : collectives.algorithmsFor(call)) {
      collectives.prefer(Collective.ALL_REDUCE, Optional.of(algorithm));
      fill(in, out, count);
      run(collectives.run(call));
      check("all-reduce by " + algorithm, out, count, i -> sum.applyAsInt(n, i));
      run(collectives.allReduce(in, in, count, INT32, SUM));
      check("all-reduce in place by " + algorithm, in, count, i -> sum.applyAsInt(n, i));
    }
    collectives.prefer(Collective.ALL_REDUCE, Optional.empty());
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
          check("after replay " + replay, x, count, new Expected(n, replay)::value);
        }
      }
      owner.await();
      check("at the end", x, count, new Expected(n, replays)::value);
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

  private record Expected(int n, int replays) {
    int value(int i) {
      return n * replays + replays / 10 * 3;
    }
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
