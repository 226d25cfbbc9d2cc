// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import com.sun.management.OperatingSystemMXBean;
import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;

/** Measures operations: warm-up, times, bytes that they allocate, alternatives in turn. */
public final class Samples {
  private static final double MICROS = 1e3;

  private Samples() {}

  /** An operation. */
  @FunctionalInterface
  interface Action {
    void run() throws Exception;
  }

  /** An operation that returns what it measured itself. */
  @FunctionalInterface
  interface Measured {
    double run() throws Exception;
  }

  /**
   * The cost of one operation.
   *
   * @param micros wall time
   * @param cpuMicros time of all processors, of all threads of this process
   * @param bytes that the calling thread allocated
   */
  record Cost(double micros, double cpuMicros, double bytes) {}

  /** Returns the cost of one operation of a run. */
  static Cost cost(long operations, Action run) throws Exception {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long bytes = threads.getCurrentThreadAllocatedBytes();
    long cpu = cpuNanos();
    long start = System.nanoTime();
    run.run();
    double nanos = System.nanoTime() - start;
    return new Cost(
        nanos / MICROS / operations,
        (cpuNanos() - cpu) / MICROS / operations,
        (double) (threads.getCurrentThreadAllocatedBytes() - bytes) / operations);
  }

  /** Returns the processor time of this process. */
  static long cpuNanos() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  /** Returns the microseconds of each operation, after some that warm up. */
  static double[] micros(int warmUps, int count, Action action) throws Exception {
    return each(
        warmUps,
        count,
        () -> {
          long start = System.nanoTime();
          action.run();
          return (System.nanoTime() - start) / MICROS;
        });
  }

  /** Returns what each operation measured, after some that warm up. */
  static double[] each(int warmUps, int count, Measured action) throws Exception {
    double[] values = new double[count];
    for (int i = -warmUps; i < count; i++) {
      double value = action.run();
      if (i >= 0) {
        values[i] = value;
      }
    }
    return values;
  }

  /**
   * Measures alternatives in turn, so that other work of the machine slows all of them.
   *
   * @return the values of each, one a round
   */
  static double[][] inTurns(int rounds, Measured... alternatives) throws Exception {
    double[][] values = new double[alternatives.length][rounds];
    for (int round = 0; round < rounds; round++) {
      for (int i = 0; i < alternatives.length; i++) {
        // The other way round in every other round.
        int next = round % 2 == 0 ? i : alternatives.length - 1 - i;
        values[next][round] = alternatives[next].run();
      }
    }
    return values;
  }

  /** Starts an operation on a thread of its own. */
  static CompletableFuture<Double> async(Measured operation) {
    CompletableFuture<Double> done = new CompletableFuture<>();
    Runnable run =
        () -> {
          try {
            done.complete(operation.run());
          } catch (Exception e) {
            done.completeExceptionally(e);
          }
        };
    new Thread(run).start();
    return done;
  }

  /** Returns the value below which a share of the samples lies; sorts them. */
  static double percentile(double[] samples, double share) {
    Arrays.sort(samples);
    return samples[(int) Math.min(samples.length - 1, Math.floor(share * samples.length))];
  }

  /** Returns the median; sorts the samples. */
  static double median(double[] samples) {
    return percentile(samples, 0.5);
  }
}
