// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/**
 * Algorithms for the same collective in turn, in the same processes, so that what else the machine
 * does slows all of them: floats, sums, out of place, on registered buffers.
 *
 * <p>Arguments: collectives, algorithms, sizes in KiB (each list with commas), rounds, milliseconds
 * a round. Rank 0 prints the median round of each algorithm, in microseconds a call, and the first
 * one's divided by the last one's.
 */
public final class AlgorithmsInTurn {
  private static final DataType TYPE = DataType.FLOAT32;
  private static final int WARM_UP_CALLS = 20;
  private static final long WARM_UP_BYTES = 512L << 20;

  private final RankGroup group;
  private final Collectives collectives;
  private final String[] algorithms;
  private final int rounds;
  private final double millis;

  private AlgorithmsInTurn(RankGroup group, String[] args) {
    this.group = group;
    this.collectives = group.collectives();
    this.algorithms = args[1].split(",");
    this.rounds = Integer.parseInt(args[3]);
    this.millis = Double.parseDouble(args[4]);
  }

  /** As the class says. */
  public static void main(String[] args) {
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      AlgorithmsInTurn benchmark = new AlgorithmsInTurn(group, args);
      for (String label : args[0].split(",")) {
        Collective collective =
            List.of(Collective.values()).stream()
                .filter(kind -> kind.label().equals(label))
                .findFirst()
                .orElseThrow();
        for (String kib : args[2].split(",")) {
          benchmark.measure(collective, Long.parseLong(kib) << 10);
        }
      }
    }
  }

  private void measure(Collective collective, long bytes) {
    try (DeviceBuffer in = group.device().allocate(bytes);
        DeviceBuffer out = group.device().allocate(bytes);
        AutoCloseable input = collectives.register(in).join();
        AutoCloseable output = collectives.register(out).join()) {
      CollectiveCall call = call(collective, in, out, bytes / TYPE.size());
      long[] calls = new long[algorithms.length];
      for (int i = 0; i < algorithms.length; i++) {
        long warmUp = Math.max(WARM_UP_CALLS, WARM_UP_BYTES / bytes);
        double micros = time(collective, algorithms[i], call, warmUp);
        calls[i] = agree(Math.max(2, (long) (millis * 1000 / micros)));
      }
      double[][] micros = new double[algorithms.length][rounds];
      for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < algorithms.length; i++) {
          micros[i][round] = time(collective, algorithms[i], call, calls[i]);
        }
      }
      if (group.rank() == 0) {
        print(collective, bytes, micros);
      }
    } catch (Exception e) {
      throw new IllegalStateException(collective.label() + " of " + bytes + " bytes", e);
    }
  }

  private CollectiveCall call(Collective collective, DeviceBuffer in, DeviceBuffer out, long n) {
    long part = n / group.nRanks();
    return switch (collective) {
      case ALL_REDUCE -> CollectiveCall.allReduce(in, out, n, TYPE, ReduceOp.SUM);
      case ALL_GATHER -> CollectiveCall.allGather(in, out, part, TYPE);
      case REDUCE_SCATTER -> CollectiveCall.reduceScatter(in, out, part, TYPE, ReduceOp.SUM);
      case BROADCAST -> CollectiveCall.broadcast(in, out, n, TYPE, 0);
      case REDUCE -> CollectiveCall.reduce(in, out, n, TYPE, ReduceOp.SUM, 0);
      case ALL_TO_ALL -> CollectiveCall.allToAll(in, out, part, TYPE);
      default -> throw new IllegalArgumentException(collective.label());
    };
  }

  /** Microseconds a call. */
  private double time(Collective collective, String algorithm, CollectiveCall call, long calls) {
    collectives.prefer(collective, Optional.of(algorithm));
    collectives.barrier().block();
    long begin = System.nanoTime();
    for (long i = 0; i < calls; i++) {
      collectives.run(call).block();
    }
    collectives.barrier().block();
    return (System.nanoTime() - begin) / 1e3 / calls;
  }

  /** Rank 0's value. */
  private long agree(long value) {
    try (DeviceBuffer word = group.device().allocate(Long.BYTES)) {
      ByteBuffer bytes = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      word.upload(0, bytes.putLong(0, value));
      collectives.broadcast(word, 1, DataType.INT64, 0).block();
      word.download(0, bytes.clear());
      return bytes.getLong(0);
    }
  }

  private void print(Collective collective, long bytes, double[][] micros) {
    StringBuilder line = new StringBuilder(collective.label() + " " + (bytes >> 10) + " KiB:");
    double[] medians = new double[algorithms.length];
    for (int i = 0; i < algorithms.length; i++) {
      Arrays.sort(micros[i]);
      medians[i] = micros[i][rounds / 2];
      line.append(
          String.format(
              " %s %.0f us (best %.0f, worst %.0f)",
              algorithms[i], medians[i], micros[i][0], micros[i][rounds - 1]));
    }
    System.out.printf("%s ratio %.2f%n", line, medians[0] / medians[algorithms.length - 1]);
  }
}
