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
import java.util.function.ToDoubleFunction;
import java.util.stream.DoubleStream;
import jcuda.driver.CUgraph;
import reactor.core.publisher.Mono;

/**
 * One of the ranks of {@link LatencyFigures}. All do the same number of calls, one after the other,
 * and so keep each other in step; rank 0 tells its figures.
 */
public final class LatencyRank {
  private static final int ROUNDS = 5_000;
  private static final int WARM_UPS = 20_000;
  private static final int BYTES = 1024;
  private static final int STEPS = 20;
  private static final int MANY_STEPS = 400;
  private static final int REPLAYS = 200;
  private static final double AT_MOST_MORE_THAN_C = 1;
  private static final double REPLAY_MORE_THAN_C = 0.5;
  private static final double REPLAY_AT_MOST_MORE = 2;
  private static final int SPY_TAG = 1 << 20;
  private static final double MICROS = 1e3;

  private final RankGroup group;
  private final DeviceBuffer buffer;
  private final CollectiveCall call;
  private final Figures figures;

  private int spies;

  // Written by the completion thread.
  private volatile long completed;

  private LatencyRank(RankGroup group, DeviceBuffer buffer) {
    this.group = group;
    this.buffer = buffer;
    this.call = CollectiveCall.allReduce(buffer, buffer, BYTES / 2, DataType.FLOAT16, ReduceOp.SUM);
    this.figures =
        new Figures(
            "latency",
            figure -> {
              if (group.rank() == 0) {
                System.out.println(GpuFigures.FIGURE + figure.line());
              }
            });
  }

  /** Runs as the rank that the environment says. */
  public static void main(String[] args) throws Exception {
    JoinOptions options = JoinOptions.fromEnvironment().withDevice(DeviceChoice.CUDA);
    try (RankGroup group = RankGroup.join(options).join();
        DeviceBuffer buffer = group.device().allocate(BYTES);
        Registration registration = group.collectives().register(buffer).join()) {
      new LatencyRank(group, registration.buffer()).measure();
    }
    System.exit(0);
  }

  private void measure() throws Exception {
    group.device().bindThread();
    Mono<Void> allReduce = group.collectives().run(call);
    subscribeAndSpin(allReduce, WARM_UPS);
    double[] micros = subscribeAndSpin(allReduce, ROUNDS);
    double ours = Figures.percentile(micros, 0.5);
    figures.add("1 KiB all-reduce, subscribe to onComplete, p50", ours, "us");
    figures.add("the same, p99", Figures.percentile(micros, 0.99), "us");
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
      run.subscribe(null, LatencyRank::fail, () -> completed = System.nanoTime());
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

  /** A loop in C that launches what was recorded on a stream, and returns microseconds. */
  private interface FromC {
    double measure(CUgraph graph, CudaStream stream);
  }

  /** Measures the kernels of {@code calls} calls with equal arguments, launched by a loop in C. */
  private double fromC(int calls, FromC loop) {
    CudaDevice device = (CudaDevice) group.device();
    CapturedCall captured = new CapturedCall(device, calls);
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withTag(SPY_TAG + spies++).withFamily(captured);
    try (Collectives spied = Collectives.create(group.communicator(), options).join();
        Registration registration = spied.register(buffer).join();
        CudaStream stream = device.createStream("from-c")) {
      spied.prefer(call.collective(), Optional.of(CapturedCall.NAME));
      spied.run(call).block();
      return loop.measure(captured.graph(), stream);
    }
  }

  private void measureFromC(double ours) {
    double theirs =
        fromC(
            1,
            (graph, stream) -> {
              LaunchLoop.micros(graph, stream, ROUNDS);
              return Figures.percentile(LaunchLoop.micros(graph, stream, ROUNDS), 0.5);
            });
    figures.add("the same kernel from C, cuStreamSynchronize, p50", theirs, "us");
    figures.addAtMost("subscribing instead of C, p50", ours - theirs, "us", AT_MOST_MORE_THAN_C);
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
      figures.add("20 all-reduces of 1 KiB within a longer graph", within, "us");
      figures.add("20 all-reduces of 1 KiB as a replay of their own", single, "us");
      figures.addAtMost("what a replay costs", single - within, "us", REPLAY_AT_MOST_MORE);
      subscribeAndSpin(some.run(), ROUNDS);
      alone = Figures.percentile(subscribeAndSpin(some.run(), ROUNDS), 0.5);
      figures.add("a replay from subscribe to onComplete, p50", alone, "us");
    }
    if (!canCompare) {
      return;
    }
    double inRow =
        replaysFromC(REPLAYS, false, micros -> DoubleStream.of(micros).sum() / micros.length);
    figures.add("the same graph from C, one after the other", inRow, "us");
    figures.addAtMost("replays instead of C", single - inRow, "us", REPLAY_MORE_THAN_C);
    double awaited = replaysFromC(ROUNDS, true, micros -> Figures.percentile(micros, 0.5));
    figures.add("the same graph from C, cuStreamSynchronize, p50", awaited, "us");
    figures.addAtMost("a replay instead of C, p50", alone - awaited, "us", AT_MOST_MORE_THAN_C);
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
