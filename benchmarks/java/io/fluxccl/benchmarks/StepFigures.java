// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * Compares two ways to send a command to the followers: a message of the bootstrap, as in {@link
 * StepLoop}, or a broadcast on a separate lane, which the followers have enqueued before. Each step
 * all-reduces 1 KiB; the figures are microseconds from subscribing on rank 0 to its completion
 * there.
 *
 * <p>Two ranks of one JVM, or the ranks of {@code fluxccl launch}.
 */
public final class StepFigures {
  private static final int ROUNDS = 3_000;
  private static final int WARM_UPS = 3_000;
  private static final int IN_FLIGHT = 4;
  private static final int COMMAND_BYTES = 64;
  private static final int BYTES = 1024;
  private static final double MICROS = 1e3;

  private final RankGroup group;
  private final DeviceBuffer buffer;
  private final DeviceBuffer command;
  private final Collectives lane;

  private StepFigures(RankGroup group) {
    this.group = group;
    this.buffer = group.device().allocate(BYTES);
    this.command = group.device().allocate(COMMAND_BYTES);
    this.lane = group.collectives().lane("commands").join();
  }

  /** Runs all ways, twice. */
  public static void main(String[] args) {
    boolean launched = System.getenv("FLUXCCL_RANK") != null;
    List<RankGroup> groups =
        launched ? List.of(RankGroup.fromEnvironment().join()) : RankGroup.local(2);
    each(
        groups,
        group -> {
          StepFigures figures = new StepFigures(group);
          for (int i = 0; i < 2; i++) {
            figures.measure("no command", figures::allReduce);
            figures.byLoop();
            figures.byLane();
          }
        });
    groups.stream().map(RankGroup::closeAsync).toList().forEach(CompletableFuture::join);
    System.exit(0);
  }

  private static void each(List<RankGroup> groups, Consumer<RankGroup> body) {
    List<CompletableFuture<Void>> all = new ArrayList<>();
    for (RankGroup group : groups) {
      CompletableFuture<Void> done = new CompletableFuture<>();
      all.add(done);
      new Thread(
              () -> {
                try {
                  body.accept(group);
                  done.complete(null);
                } catch (Throwable e) {
                  done.completeExceptionally(e);
                }
              })
          .start();
    }
    all.forEach(CompletableFuture::join);
  }

  private Mono<Void> allReduce() {
    return group.collectives().allReduce(buffer, DataType.FLOAT16, ReduceOp.SUM);
  }

  private void byLoop() {
    StepLoop loop = StepLoop.of(group, COMMAND_BYTES, IN_FLIGHT, bytes -> allReduce());
    if (group.rank() == 0) {
      Mono<Void> step = loop.step(new byte[COMMAND_BYTES]);
      measure("by the bootstrap", () -> step);
      double perStep = inFlight(step);
      System.out.printf("%-20s     %7.1f us a step%n", "the same, 4 at once", perStep);
      loop.shutdown().join();
    } else {
      loop.follow().block();
    }
    meet();
  }

  /** Microseconds a step when the commands don't wait for the steps before. */
  private static double inFlight(Mono<Void> step) {
    long start = System.nanoTime();
    Flux.range(0, ROUNDS).flatMap(i -> step, IN_FLIGHT).blockLast();
    return (System.nanoTime() - start) / MICROS / ROUNDS;
  }

  private void byLane() {
    if (group.rank() == 0) {
      byte[] bytes = new byte[COMMAND_BYTES];
      measure(
          "by a broadcast",
          () -> {
            command.upload(0, bytes);
            return lane.broadcast(command, COMMAND_BYTES, DataType.UINT8, 0).and(allReduce());
          });
    } else {
      byte[] bytes = new byte[COMMAND_BYTES];
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

  private void measure(String what, Supplier<Mono<Void>> step) {
    double[] micros = new double[ROUNDS];
    for (int i = -WARM_UPS; i < ROUNDS; i++) {
      long start = System.nanoTime();
      step.get().block();
      if (i >= 0) {
        micros[i] = (System.nanoTime() - start) / MICROS;
      }
    }
    if (group.rank() == 0) {
      System.out.printf(
          "%-20s p50 %7.1f us, p99 %7.1f us%n",
          what, Figures.percentile(micros, 0.5), Figures.percentile(micros, 0.99));
    }
  }
}
