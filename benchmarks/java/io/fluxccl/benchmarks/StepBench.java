// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * Compares two ways to send a command to the followers: a message of the bootstrap, as in {@link
 * StepLoop}, or a broadcast on a separate lane, which the followers have enqueued before. Each step
 * all-reduces 1 KiB; the figures are microseconds from subscribing on rank 0 to its completion
 * there.
 *
 * <p>Two ranks of one JVM; with {@code --ranks 2}, two processes.
 */
final class StepBench {
  private static final int ROUNDS = 3_000;
  private static final int WARM_UPS = 3_000;
  private static final int IN_FLIGHT = 4;
  private static final int COMMAND_BYTES = 64;
  private static final int BYTES = 1024;

  private final RankGroup group;
  private final Bench.Rows rows;
  private final DeviceBuffer buffer;
  private final DeviceBuffer command;
  private final Collectives lane;

  private StepBench(RankGroup group, Bench.Rows rows) {
    this.group = group;
    this.rows = rows;
    this.buffer = group.device().allocate(BYTES);
    this.command = group.device().allocate(COMMAND_BYTES);
    this.lane = group.collectives().lane("commands").join();
  }

  static final Bench BENCH =
      Bench.onHost(
          "steps",
          "how a command reaches the ranks that follow: StepLoop, a broadcast, no command",
          (rows, arguments) -> run(rows));

  private static void run(Bench.Rows rows) {
    boolean processes = !System.getenv("FLUXCCL_NRANKS").equals("1");
    List<RankGroup> groups =
        processes ? List.of(RankGroup.fromEnvironment().join()) : RankGroup.local(2);
    groups.stream()
        .map(group -> Samples.async(() -> new StepBench(group, rows).measure()))
        .toList()
        .forEach(CompletableFuture::join);
    groups.stream().map(RankGroup::closeAsync).toList().forEach(CompletableFuture::join);
  }

  /** Runs all ways, twice. */
  private double measure() throws Exception {
    for (int i = 0; i < 2; i++) {
      measure("no command", this::allReduce);
      byLoop();
      byLane();
    }
    return 0;
  }

  private Mono<Void> allReduce() {
    return group.collectives().allReduce(buffer, DataType.FLOAT16, ReduceOp.SUM);
  }

  private void byLoop() throws Exception {
    StepLoop loop = StepLoop.of(group, COMMAND_BYTES, IN_FLIGHT, bytes -> allReduce());
    if (group.rank() == 0) {
      Mono<Void> step = loop.step(new byte[COMMAND_BYTES]);
      measure("by the bootstrap", () -> step);
      // The commands don't wait for the steps before.
      Samples.Action steps = () -> Flux.range(0, ROUNDS).flatMap(i -> step, IN_FLIGHT).blockLast();
      rows.add("by the bootstrap, 4 at once", Samples.cost(ROUNDS, steps).micros(), "us");
      loop.shutdown().join();
    } else {
      loop.follow().block();
    }
    meet();
  }

  private void byLane() throws Exception {
    byte[] bytes = new byte[COMMAND_BYTES];
    if (group.rank() == 0) {
      measure(
          "by a broadcast",
          () -> {
            command.upload(0, bytes);
            return lane.broadcast(command, COMMAND_BYTES, DataType.UINT8, 0).and(allReduce());
          });
    } else {
      for (int i = 0; i < WARM_UPS + ROUNDS; i++) {
        lane.broadcast(command, COMMAND_BYTES, DataType.UINT8, 0)
            .then(
                Mono.defer(
                    () -> {
                      command.download(0, bytes);
                      return allReduce();
                    }))
            .block();
      }
    }
    meet();
  }

  private void meet() {
    group.bootstrap().barrier(Deadline.after(Deadline.DEFAULT_TIMEOUT)).join();
  }

  private void measure(String what, Supplier<Mono<Void>> step) throws Exception {
    double[] micros = Samples.micros(WARM_UPS, ROUNDS, () -> step.get().block());
    if (group.rank() == 0) {
      rows.percentiles(what, micros, "us", 0.5, 0.99);
    }
  }
}
