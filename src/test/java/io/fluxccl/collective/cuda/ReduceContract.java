// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NearWrap;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.agrona.concurrent.UnsafeBuffer;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Checks an algorithm of the family on any number of ranks. */
final class ReduceContract {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final byte UNTOUCHED = 0x55;
  private static final int MARGIN = 64;

  /**
   * Emulated GPUs are slow: without -Plong they run a ninth of the cases, spread over types and
   * counts, and fewer with many ranks.
   */
  private static final boolean THIN = EmulatedGpus.HERE && !Rounds.LONG;

  /** Offsets of input and output from the start of a cache line, in bytes. */
  private static final int[][] SHIFTS = {{0, 0}, {16, 32}, {8, 0}, {4, 8}, {2, 4}, {1, 1}};

  private final String algorithm;
  private final boolean registered;
  private final AtomicInteger done = new AtomicInteger();

  /** Expected results of the latest calls, by seed; the first rank computes them for all. */
  private final Map<Long, ByteBuffer> expected = new ConcurrentHashMap<>();

  ReduceContract(String algorithm, boolean registered) {
    this.algorithm = algorithm;
    this.registered = registered;
  }

  /** One call. */
  private record Case(
      Collective collective,
      DataType type,
      ReduceOp op,
      int count,
      int root,
      int shift,
      boolean inPlace) {}

  /** Checks that the algorithm supports at least {@code least} calls with correct results. */
  void check(LocalRanks ranks, List<Integer> counts, int least) {
    ranks.run(LONG, rank -> check(rank, counts));
    assertThat(done.get()).isGreaterThan(THIN ? least / 20 : least);
  }

  private void check(LocalRank rank, List<Integer> counts) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withTimeout(LONG);
    for (Collective each :
        List.of(Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER)) {
      options = options.withAlgorithm(each, algorithm);
    }
    int n = rank.communicator().bootstrap().nRanks();
    int most = counts.stream().mapToInt(i -> i).max().orElse(0) * 8 + 4 * MARGIN;
    try (Collectives collectives =
            NearWrap.of(Collectives.create(rank.communicator(), options).join());
        DeviceBuffer input = rank.device().allocate((long) most * n);
        DeviceBuffer output = rank.device().allocate((long) most * n)) {
      List<Registration> registrations = new ArrayList<>();
      if (registered) {
        registrations.add(collectives.register(input).join());
        registrations.add(collectives.register(output).join());
      }
      long seed = 0;
      for (Case each : cases(counts, n)) {
        run(collectives, rank.rank(), n, each, input, output, seed++);
      }
      registrations.forEach(Registration::close);
    }
  }

  private static List<Case> cases(List<Integer> counts, int n) {
    List<Case> cases = new ArrayList<>();
    int i = 0;
    for (Collective collective :
        List.of(Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)) {
      for (DataType type : DataType.values()) {
        for (int count : counts) {
          int every = !THIN ? 1 : n < 8 ? 9 : 17;
          if (i % every != i / every % every) {
            i++;
            continue;
          }
          ReduceOp op = ReduceOp.values()[i % ReduceOp.values().length];
          cases.add(
              new Case(collective, type, op, count, i % n, i / 2 % SHIFTS.length, i % 2 == 0));
          cases.add(new Case(collective, type, ReduceOp.SUM, count, i % n, 0, i % 2 == 1));
          i++;
        }
      }
    }
    return cases;
  }

  private void run(
      Collectives collectives,
      int me,
      int n,
      Case what,
      DeviceBuffer inputs,
      DeviceBuffer outputs,
      long seed) {
    DataType type = what.type();
    boolean scatter = what.collective() == Collective.REDUCE_SCATTER;
    boolean hasOutput = what.collective() != Collective.REDUCE || me == what.root();
    int inputCount = scatter ? what.count() * n : what.count();
    int inputBytes = inputCount * type.size();
    int outputBytes = what.count() * type.size();
    int size = type.size();
    long inputAt = MARGIN + SHIFTS[what.shift()][0] / size * size;
    long outputAt = MARGIN + SHIFTS[what.shift()][1] / size * size;
    DeviceBuffer target = outputs;
    if (what.inPlace()) {
      target = inputs;
      outputAt = scatter ? inputAt + (long) me * outputBytes : inputAt;
    }
    ByteBuffer margin = untouched(outputBytes + 2 * MARGIN);
    ReduceTestData.upload(outputs, outputAt - MARGIN, margin, outputBytes + 2 * MARGIN);
    ReduceTestData.upload(
        inputs, inputAt - MARGIN, untouched(inputBytes + 2 * MARGIN), inputBytes + 2 * MARGIN);
    ReduceTestData.upload(
        inputs, inputAt, ReduceTestData.input(type, me, seed, inputCount), inputBytes);
    DeviceBuffer input = slice(inputs, inputAt, inputBytes);
    DeviceBuffer output = hasOutput ? slice(target, outputAt, outputBytes) : null;
    CollectiveCall call =
        switch (what.collective()) {
          case ALL_REDUCE -> CollectiveCall.allReduce(input, output, what.count(), type, what.op());
          case REDUCE_SCATTER ->
              CollectiveCall.reduceScatter(input, output, what.count(), type, what.op());
          default ->
              CollectiveCall.reduce(input, output, what.count(), type, what.op(), what.root());
        };
    if (!canDo(collectives, call)) {
      return;
    }
    // Three times if not in place: consecutive calls alternate between buffer sets.
    Mono<Void> once = collectives.run(call);
    (what.inPlace() ? once : Flux.concat(once, once, once).then()).block(LONG);
    if (hasOutput) {
      ByteBuffer expected = expected(type, what.op(), n, seed, inputCount);
      ByteBuffer actual = ReduceTestData.download(target, outputAt, outputBytes);
      int wrong =
          ReduceTestData.mismatch(
              type, expected, scatter ? me * what.count() : 0, actual, what.count());
      assertThat(wrong).as("first wrong element on rank %d of %d in %s", me, n, what).isEqualTo(-1);
      if (!what.inPlace()) {
        assertThat(ReduceTestData.download(target, outputAt + outputBytes, MARGIN))
            .as("behind the output in %s", what)
            .isEqualTo(untouched(MARGIN));
        assertThat(ReduceTestData.download(target, outputAt - MARGIN, MARGIN))
            .as("before the output in %s", what)
            .isEqualTo(untouched(MARGIN));
      }
    }
    done.incrementAndGet();
  }

  private ByteBuffer expected(DataType type, ReduceOp op, int n, long seed, int count) {
    expected.keySet().removeIf(past -> past < seed - 3);
    return expected.computeIfAbsent(
        seed,
        now ->
            ReduceTestData.reduced(type, op, ReduceTestData.inputs(type, n, seed, count), count));
  }

  private boolean canDo(Collectives collectives, CollectiveCall call) {
    try {
      return collectives.algorithmFor(call).equals(algorithm);
    } catch (io.fluxccl.InvalidUsage none) {
      return false;
    }
  }

  private static DeviceBuffer slice(DeviceBuffer of, long offset, long size) {
    return ((CudaBuffer) of).slice(offset, Math.max(1, size));
  }

  private static ByteBuffer untouched(int bytes) {
    ByteBuffer margin = ReduceTestData.allocate(bytes);
    new UnsafeBuffer(margin).setMemory(0, margin.capacity(), UNTOUCHED);
    return margin.limit(Math.max(bytes, 16));
  }
}
