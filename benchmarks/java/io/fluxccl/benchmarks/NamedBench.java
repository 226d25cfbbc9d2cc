// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.Text;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.collective.NamedOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.RankGroup;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * The gradients of GPT-2 small, 148 tensors of floats, which become ready in a random order on each
 * rank: named all-reduces with and without buckets, ordered all-reduces, and one of all bytes. The
 * figures are the times on rank 0 from the first subscription to the last completion.
 *
 * <p>Arguments: rounds (20); a divisor of the number of layers and words (1), for few cores.
 */
final class NamedBench {
  private static final int WARM_UPS = 3;

  /** Rounds of the small tensors, after which the code of a call is compiled. */
  private static final int SMALL_ROUNDS = 300;

  private static final int LONE = 2000;
  private static final int LAYERS = 12;
  private static final int WIDTH = 768;
  private static final int WORDS = 50_257;
  private static final int POSITIONS = 1024;
  private static final Duration LONG = Duration.ofSeconds(120);

  static final Bench ON_HOST =
      Bench.onHost(
              "named",
              "148 tensors by name in random orders, beside one call, 4 processes",
              (rows, arguments) -> run(rows, arguments, "<= 1.1"))
          .inRanks(4);

  static final Bench ON_GPUS =
      Bench.onGpus(
              2,
              "named-gpus",
              "148 tensors by name in random orders, beside one call, 2 GPUs",
              (rows, arguments) -> run(rows, arguments, "<= 1.15"))
          .inRanks(2);

  private final RankGroup group;
  private final Bench.Rows rows;
  private final FloatView whole;
  private final List<FloatView> tensors = new ArrayList<>();
  private final Random random;

  private NamedBench(RankGroup group, Bench.Rows rows, List<Long> sizes) {
    this.group = group;
    this.rows = rows;
    this.whole = group.device().allocateFloats(sizes.stream().mapToLong(Long::longValue).sum());
    long begin = 0;
    for (long size : sizes) {
      tensors.add(whole.slice(begin, size));
      begin += size;
    }
    this.random = new Random(group.rank());
  }

  /** Returns the elements of the tensors of GPT-2 small, or of a part of it. */
  private static List<Long> sizes(int divisor) {
    List<Long> sizes = new ArrayList<>();
    long width = WIDTH;
    sizes.add(WORDS / divisor * width);
    sizes.add(POSITIONS * width);
    for (int layer = 0; layer < LAYERS / divisor; layer++) {
      sizes.addAll(List.of(width, width, 3 * width * width, 3 * width, width * width, width));
      sizes.addAll(List.of(width, width, 4 * width * width, 4 * width, 4 * width * width, width));
    }
    sizes.addAll(List.of(width, width));
    return sizes;
  }

  private static void run(Bench.Rows rows, List<String> arguments, String goal) throws Exception {
    int rounds = arguments.isEmpty() ? 20 : Integer.parseInt(arguments.get(0));
    int divisor = arguments.size() < 2 ? 1 : Integer.parseInt(arguments.get(1));
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      NamedBench bench = new NamedBench(group, rows, sizes(divisor));
      bench.measure(rounds, goal);
      bench.measureLone();
      bench.whole.close();
    }
  }

  private void measure(int rounds, String goal) throws Exception {
    NamedOptions single = NamedOptions.DEFAULT.withBucketBytes(0);
    try (NamedCollectives alone = group.collectives().named(single).join();
        NamedCollectives fused = group.collectives().named().join()) {
      Samples.Measured one = () -> time(() -> group.collectives().allReduce(whole, ReduceOp.AVG));
      Samples.Measured ordered =
          () ->
              time(
                  () ->
                      Mono.when(
                          tensors.stream()
                              .map(each -> group.collectives().allReduce(each, ReduceOp.AVG))
                              .toList()));
      Samples.Measured byName = () -> time(() -> reduce(alone, WORDS * WIDTH));
      Samples.Measured inBuckets = () -> time(() -> reduce(fused, WORDS * WIDTH));
      for (int i = 0; i < SMALL_ROUNDS; i++) {
        reduce(alone, 4 * WIDTH).block(LONG);
        reduce(fused, 4 * WIDTH).block(LONG);
      }
      Samples.inTurns(WARM_UPS, one, ordered, byName, inBuckets);
      double[][] micros = Samples.inTurns(rounds, one, ordered, byName, inBuckets);
      if (group.rank() == 0) {
        double peer = Samples.median(micros[0]);
        String all = Text.of("%d tensors, %d MB, ", tensors.size(), whole.buffer().size() >> 20);
        compare(all + "ordered", micros[1], peer, "");
        compare(all + "by name, no buckets", micros[2], peer, "");
        compare(all + "by name, buckets", micros[3], peer, goal);
      }
    }
  }

  private void compare(String what, double[] micros, double peer, String goal) {
    rows.compare(what, Samples.median(micros), peer, "us", "one call", goal);
  }

  /** Reduces the tensors of at most some elements. */
  private Mono<Void> reduce(NamedCollectives named, int most) {
    List<Integer> order =
        IntStream.range(0, tensors.size())
            .filter(i -> tensors.get(i).size() <= most)
            .boxed()
            .collect(Collectors.toList());
    Collections.shuffle(order, random);
    return Flux.fromIterable(order)
        .flatMap(i -> named.allReduce("gradient " + i, tensors.get(i), ReduceOp.AVG), order.size())
        .then();
  }

  /** Returns the microseconds of an operation that all ranks begin at once. */
  private double time(Supplier<Mono<Void>> operation) {
    group.bootstrap().barrier(Deadline.after(LONG)).join();
    group.collectives().barrier().block(LONG);
    long start = System.nanoTime();
    operation.get().block(LONG);
    return (System.nanoTime() - start) / 1e3;
  }

  /** Compares a call of 1 KiB that is alone with an ordered one. */
  private void measureLone() throws Exception {
    try (NamedCollectives named = group.collectives().named().join();
        DeviceBuffer buffer = group.device().allocate(1024)) {
      FloatView view = FloatView.of(buffer, DataType.FLOAT32);
      Samples.Measured ordered =
          () -> lone(() -> group.collectives().allReduce(view, ReduceOp.SUM));
      Samples.Measured byName = () -> lone(() -> named.allReduce("lone", view, ReduceOp.SUM));
      Samples.inTurns(LONE / 2, ordered, byName);
      double[][] micros = Samples.inTurns(LONE, ordered, byName);
      if (group.rank() == 0) {
        rows.compare(
            "1 KiB alone by name",
            Samples.median(micros[1]),
            Samples.median(micros[0]),
            "us",
            "ordered",
            "");
      }
    }
  }

  private static double lone(Supplier<Mono<Void>> operation) {
    long start = System.nanoTime();
    operation.get().block(LONG);
    return (System.nanoTime() - start) / 1e3;
  }
}
