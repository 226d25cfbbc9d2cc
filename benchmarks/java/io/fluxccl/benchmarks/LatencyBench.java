// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.ToDoubleBiFunction;
import java.util.function.ToDoubleFunction;
import java.util.stream.DoubleStream;
import jcuda.driver.CUgraph;
import reactor.core.publisher.Mono;

/**
 * Host overhead of a collective, from subscribing to completion, and of a replay. Both ranks do the
 * same number of calls, one after the other, and so keep each other in step.
 */
final class LatencyBench {
  private static final int ROUNDS = 5_000;
  private static final int WARM_UPS = 20_000;
  private static final int BYTES = 1024;
  private static final int STEPS = 20;
  private static final int MANY_STEPS = 400;
  private static final int REPLAYS = 200;
  private static final int SPY_TAG = 1 << 20;
  private static final double MICROS = 1e3;

  private final RankGroup group;
  private final DeviceBuffer buffer;
  private final CollectiveCall call;
  private final Bench.Rows rows;

  private int spies;

  // Written by the completion thread.
  private volatile long completed;

  private LatencyBench(RankGroup group, DeviceBuffer buffer, Bench.Rows rows) {
    this.group = group;
    this.buffer = buffer;
    this.call = CollectiveCall.allReduce(buffer, buffer, BYTES / 2, DataType.FLOAT16, ReduceOp.SUM);
    this.rows = rows;
  }

  static final Bench BENCH =
      Bench.onGpus(
              2,
              "latency",
              "subscribe to onComplete of a 1 KiB all-reduce, replays of 20; two processes",
              (rows, arguments) -> run(rows))
          .inRanks(2);

  private static void run(Bench.Rows rows) throws Exception {
    JoinOptions options = JoinOptions.fromEnvironment().withDevice(DeviceChoice.CUDA);
    try (RankGroup group = RankGroup.join(options).join();
        DeviceBuffer buffer = group.device().allocate(BYTES);
        Registration registration = group.collectives().register(buffer).join()) {
      new LatencyBench(group, registration.buffer(), rows).measure();
    }
  }

  private void measure() throws Exception {
    group.device().bindThread();
    Mono<Void> allReduce = group.collectives().run(call);
    subscribeAndSpin(allReduce, WARM_UPS);
    double[] micros = subscribeAndSpin(allReduce, ROUNDS);
    double ours = Samples.median(micros);
    rows.add("1 KiB all-reduce, subscribe to onComplete, p50", ours, "us");
    rows.add(
        "1 KiB all-reduce, subscribe to onComplete, p99", Samples.percentile(micros, 0.99), "us");
    boolean canCompare = canCompare();
    if (canCompare) {
      measureFromC(ours);
    }
    measureReplays(canCompare);
  }

  /** Microseconds from each subscribing to its completion. */
  private double[] subscribeAndSpin(Mono<Void> run, int rounds) {
    double[] micros = new double[rounds];
    for (int i = 0; i < rounds; i++) {
      completed = 0;
      long start = System.nanoTime();
      run.subscribe(null, LatencyBench::fail, () -> completed = System.nanoTime());
      while (completed == 0) {
        Thread.onSpinWait();
      }
      micros[i] = (completed - start) / MICROS;
    }
    return micros;
  }

  private static void fail(Throwable failure) {
    failure.printStackTrace();
    Runtime.getRuntime().halt(1);
  }

  /** Builds the loops in C on all ranks, or returns false. */
  private boolean canCompare() throws Exception {
    boolean built = LaunchLoop.build();
    // Both ranks must launch, or none.
    byte[] mine = {(byte) (built ? 1 : 0)};
    boolean allBuilt =
        group.bootstrap().allGather(mine, Deadline.after(Deadline.DEFAULT_TIMEOUT)).join().stream()
            .allMatch(bytes -> bytes[0] == 1);
    if (!allBuilt) {
      System.err.println("no C compiler here: nothing to compare subscribing with");
    }
    return allBuilt;
  }

  /** Measures the kernels of {@code calls} calls with equal arguments, launched by a loop in C. */
  private double fromC(int calls, ToDoubleBiFunction<CUgraph, CudaStream> loop) {
    CudaDevice device = (CudaDevice) group.device();
    CapturedCall captured = new CapturedCall(device, calls);
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withTag(SPY_TAG + spies++).withFamily(captured);
    try (Collectives spied = Collectives.create(group.communicator(), options).join();
        Registration registration = spied.register(buffer).join();
        CudaStream stream = device.createStream("from-c")) {
      spied.prefer(call.collective(), Optional.of(CapturedCall.NAME));
      spied.run(call).block();
      return loop.applyAsDouble(captured.graph(), stream);
    }
  }

  private void measureFromC(double ours) {
    double theirs =
        fromC(
            1,
            (graph, stream) -> {
              LaunchLoop.micros(graph, stream, ROUNDS);
              return Samples.median(LaunchLoop.micros(graph, stream, ROUNDS));
            });
    rows.add("the same kernel from C, cuStreamSynchronize, p50", theirs, "us");
    rows.add("subscribing instead of C, p50", ours - theirs, "us", "<= 1");
  }

  private void measureReplays(boolean canCompare) {
    double single;
    double alone;
    try (CapturedPipeline some = pipeline(STEPS).capture();
        CapturedPipeline many = pipeline(MANY_STEPS).capture()) {
      int runs = REPLAYS * STEPS / MANY_STEPS;
      for (int i = 0; i < 5; i++) {
        replay(some, REPLAYS);
        replay(many, runs);
      }
      single = replay(some, REPLAYS) / REPLAYS;
      double within = replay(many, runs) / REPLAYS;
      rows.add("20 all-reduces of 1 KiB within a longer graph", within, "us");
      rows.add("20 all-reduces of 1 KiB as a replay of their own", single, "us");
      rows.add("what a replay costs", single - within, "us", "<= 2");
      subscribeAndSpin(some.run(), ROUNDS);
      alone = Samples.median(subscribeAndSpin(some.run(), ROUNDS));
      rows.add("a replay from subscribe to onComplete, p50", alone, "us");
    }
    if (!canCompare) {
      return;
    }
    double inRow =
        replaysFromC(REPLAYS, false, micros -> DoubleStream.of(micros).sum() / micros.length);
    rows.add("the same graph from C, one after the other", inRow, "us");
    rows.add("replays instead of C", single - inRow, "us", "<= 0.5");
    double awaited = replaysFromC(ROUNDS, true, Samples::median);
    rows.add("the same graph from C, cuStreamSynchronize, p50", awaited, "us");
    rows.add("a replay instead of C, p50", alone - awaited, "us", "<= 1");
  }

  /** Measures replays of a graph of calls by a loop in C, the second time that they run. */
  private double replaysFromC(int replays, boolean each, ToDoubleFunction<double[]> figure) {
    return fromC(
        STEPS,
        (graph, stream) -> {
          LaunchLoop.replayMicros(graph, stream, replays, each);
          return figure.applyAsDouble(LaunchLoop.replayMicros(graph, stream, replays, each));
        });
  }

  private Pipeline pipeline(int steps) {
    Pipeline pipeline = group.collectives().pipeline();
    for (int i = 0; i < steps; i++) {
      pipeline = pipeline.then(call);
    }
    return pipeline;
  }

  /** Returns the microseconds of consecutive replays, each with its own completion. */
  private static double replay(CapturedPipeline pipeline, int times) {
    Mono<Void> run = pipeline.run();
    long start = System.nanoTime();
    CompletableFuture<Void> last = null;
    for (int i = 0; i < times; i++) {
      last = run.toFuture();
    }
    last.join();
    return (System.nanoTime() - start) / MICROS;
  }
}
