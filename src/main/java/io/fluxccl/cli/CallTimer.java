// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.LongStream;

/**
 * Measures calls on one rank, of either library by the same code. Every rank runs the same steps:
 * whatever decides the next step is the same on all ranks.
 *
 * @param rank whose calls are measured
 * @param plan how they are measured
 */
record CallTimer(PerfRank rank, PerfPlan plan) {
  /** The least number of calls of a round. */
  static final int LEAST_ITERATIONS = 20;

  /** The least time of a round, if the number of iterations is open. */
  static final Duration LEAST_TIME = Duration.ofMillis(20);

  /** The number of measured rounds, if the number of iterations is open; the median counts. */
  static final int ROUNDS = 3;

  /**
   * A round that takes at least this time is the only one: a pause of the JVM is short in
   * comparison.
   */
  private static final Duration LONG = Duration.ofMillis(200);

  /** The time for which a case runs in one round of the warm-up. */
  private static final Duration WARM_UP_TIME = Duration.ofMillis(2);

  private static final int BATCH = 20;
  private static final int MOST_ITERATIONS = 20_000;

  /** Batches that are enqueued at once; a GPU takes about a thousand launches before it blocks. */
  private static final int MOST_AT_ONCE = 256;

  /** Calls that are enqueued at once may need this part of the time limit. */
  private static final int SHARE_OF_LIMIT = 4;

  private static final Duration OWN_GRACE = Duration.ofSeconds(2);

  /**
   * Returns the time of one call in microseconds, averaged over the calls and ranks: from a barrier
   * until the last call is complete. If the number of iterations is open, that is the median of
   * several rounds.
   */
  double micros(MeasuredLibrary library, PerfCase shape, BufferAliasing placement)
      throws InterruptedException {
    return micros(library, shape, placement, plan.iterations(), LEAST_TIME, ROUNDS);
  }

  /** Runs a case for a moment, in the way it is measured. */
  void warmUp(MeasuredLibrary library, PerfCase shape, BufferAliasing placement)
      throws InterruptedException {
    micros(library, shape, placement, Optional.empty(), WARM_UP_TIME, 1);
  }

  private double micros(
      MeasuredLibrary library,
      PerfCase shape,
      BufferAliasing placement,
      Optional<Integer> iterations,
      Duration leastTime,
      int rounds)
      throws InterruptedException {
    int length = plan.graph().orElse(Math.min(BATCH, iterations.orElse(BATCH)));
    long estimate = plan.timeout().toNanos();
    if (plan.warmUpIterations() > 0) {
      try (Batch one = new Batch(library, shape, placement, 1, false)) {
        estimate = one.time(1, estimate);
      }
      length = Math.min(length, mostCalls(estimate));
    }
    try (Batch batch = new Batch(library, shape, placement, length, plan.graph().isPresent())) {
      if (plan.warmUpIterations() > 1) {
        int runs = runs(plan.warmUpIterations() - 1, length);
        estimate = batch.time(runs, estimate) / runs / length;
      }
      int runs = runs(iterations.orElse(LEAST_ITERATIONS), length);
      int times = iterations.isPresent() ? 1 : rounds;
      long nanos = batch.median(times, runs, estimate);
      while (iterations.isEmpty() && nanos < leastTime.toNanos() && runs < MOST_ITERATIONS) {
        estimate = nanos / runs / length;
        double missing = 1.2 * leastTime.toNanos() / Math.max(1, nanos);
        runs = (int) Math.min(MOST_ITERATIONS, Math.ceil(runs * Math.max(2, missing)));
        nanos = batch.median(times, runs, estimate);
      }
      return nanos / 1e3 / runs / length;
    }
  }

  /**
   * Runs a case once in the way it is measured, and waits for it: one call, or a whole graph where
   * the input stays as it is.
   */
  void once(MeasuredLibrary library, PerfCase shape, BufferAliasing placement)
      throws InterruptedException {
    int length = placement == BufferAliasing.OUT_OF_PLACE ? plan.graph().orElse(1) : 1;
    try (Batch batch = new Batch(library, shape, placement, length, plan.graph().isPresent())) {
      batch.await(batch.calls.run(1), length);
    }
  }

  /** Returns how many calls take no more than a share of each rank's time limit. */
  private int mostCalls(long estimate) {
    long mine = plan.timeout().toNanos() / SHARE_OF_LIMIT / Math.max(1, estimate);
    long most = LongStream.of(gather(mine)).min().orElseThrow();
    return (int) Math.max(1, Math.min(Integer.MAX_VALUE, most));
  }

  /** Returns how many batches of {@code length} calls hold {@code calls} calls. */
  static int runs(int calls, int length) {
    return (int) Math.max(1, ((long) calls + length - 1) / length);
  }

  /** Calls that are enqueued together. */
  private final class Batch implements AutoCloseable {
    private final PreparedCalls calls;
    private final PerfCase shape;
    private final int length;

    Batch(
        MeasuredLibrary library,
        PerfCase shape,
        BufferAliasing placement,
        int length,
        boolean graph) {
      this.calls = library.prepare(shape, placement, length, graph);
      this.shape = shape;
      this.length = length;
    }

    /** Returns the median of some rounds, or the first long one: the same on every rank. */
    long median(int rounds, int runs, long estimate) throws InterruptedException {
      long[] nanos = new long[rounds];
      for (int i = 0; i < rounds; i++) {
        rank.barrier(Deadline.after(plan.timeout()));
        long[] times = gather(time(runs, estimate));
        nanos[i] = Math.round(LongStream.of(times).average().orElseThrow());
        if (nanos[i] >= LONG.toNanos()) {
          return nanos[i];
        }
      }
      Arrays.sort(nanos);
      return nanos[rounds / 2];
    }

    /**
     * Returns the time of some runs in nanoseconds. Enqueues as many at once as the time limit
     * allows, in two halves that follow each other.
     *
     * @param estimate nanoseconds of one call
     */
    long time(int runs, long estimate) throws InterruptedException {
      long perRun = Math.max(1, estimate) * length;
      long allowed = plan.timeout().toNanos() / SHARE_OF_LIMIT / perRun;
      int half = (int) Math.max(1, Math.min(MOST_AT_ONCE, allowed));
      CompletableFuture<Void> before = CompletableFuture.completedFuture(null);
      long start = rank.nanoTime();
      for (int left = runs; left > 0; left -= half) {
        CompletableFuture<Void> now = calls.run(Math.min(left, half));
        await(before, length * half);
        before = now;
      }
      await(before, length);
      return rank.nanoTime() - start;
    }

    void await(CompletableFuture<Void> completion, int count) throws InterruptedException {
      try {
        // The rank keeps the limit itself and names the late rank; this is for a rank that hangs.
        completion.get(plan.timeout().plus(OWN_GRACE).toNanos(), TimeUnit.NANOSECONDS);
      } catch (TimeoutException e) {
        throw Timeout.of(
            FluxCclException.NO_RANK,
            "%d %s did not complete on rank %d within %.3f s; check that every rank still runs, or"
                + " give a longer --timeout",
            count,
            shape,
            rank.rank(),
            plan.timeout().toNanos() / 1e9);
      } catch (ExecutionException | CancellationException e) {
        throw FluxCclException.from(e);
      }
    }

    @Override
    public void close() {
      calls.close();
    }
  }

  /** Returns a number of each rank, by rank. */
  long[] gather(long mine) {
    byte[] message = ByteBuffer.allocate(Long.BYTES).putLong(mine).array();
    return rank.allGather(message, Deadline.after(plan.timeout())).stream()
        .mapToLong(bytes -> ByteBuffer.wrap(bytes).getLong())
        .toArray();
  }
}
