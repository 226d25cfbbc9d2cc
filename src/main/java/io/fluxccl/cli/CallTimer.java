package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.OptionalInt;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.LongStream;

/**
 * Measures calls on one rank, whoever does them: always with the same code. Every rank runs the
 * same; whatever decides how it goes on is agreed on by all, so that they stay in step.
 */
final class CallTimer {
  /** How many calls are measured at least. */
  static final int LEAST_ITERATIONS = 20;

  /** How long is measured at least, when the number of iterations was left open. */
  static final Duration LEAST_TIME = Duration.ofMillis(20);

  /**
   * How often is measured, when the number of iterations was left open: the median counts, so that
   * one pause of a JVM or of the machine does not.
   */
  static final int ROUNDS = 3;

  /** What took so long is measured once: a pause is little beside it. */
  private static final Duration LONG = Duration.ofMillis(200);

  /** How long a case is run in one round of the warm-up. */
  private static final Duration WARM_UP_TIME = Duration.ofMillis(2);

  private static final int BATCH = 20;
  private static final int MOST_ITERATIONS = 20_000;

  /** Runs that are enqueued at once; a GPU takes about a thousand launches before it blocks. */
  private static final int MOST_AT_ONCE = 256;

  /** What is enqueued at once may need this part of the time limit, as far as is known. */
  private static final int SHARE_OF_LIMIT = 4;

  private static final Duration OWN_GRACE = Duration.ofSeconds(2);

  private final PerfRank rank;
  private final PerfPlan plan;

  CallTimer(PerfRank rank, PerfPlan plan) {
    this.rank = rank;
    this.plan = plan;
  }

  /**
   * The time of one call in microseconds, averaged over the calls and ranks: from a barrier until
   * the last is complete. Of several rounds of calls, where their number was left open, the median.
   */
  double micros(MeasuredLibrary library, PerfCase shape, Placement placement)
      throws InterruptedException {
    return micros(library, shape, placement, plan.iterations(), LEAST_TIME, ROUNDS);
  }

  /** Does a case for a moment, as it is going to be measured. */
  void warmUp(MeasuredLibrary library, PerfCase shape, Placement placement)
      throws InterruptedException {
    micros(library, shape, placement, OptionalInt.empty(), WARM_UP_TIME, 1);
  }

  private double micros(
      MeasuredLibrary library,
      PerfCase shape,
      Placement placement,
      OptionalInt iterations,
      Duration leastTime,
      int rounds)
      throws InterruptedException {
    int wanted = plan.graph().orElse(Math.min(BATCH, iterations.orElse(BATCH)));
    Duration estimate = plan.timeout();
    if (plan.warmUpIterations() > 0) {
      estimate = estimate(library, shape, placement);
    }
    int length = plan.warmUpIterations() > 0 ? lengthFor(shape, estimate, wanted) : wanted;
    try (PreparedCalls work = library.prepare(shape, placement, length, plan.graph().isPresent())) {
      int warmUps = plan.warmUpIterations() - 1;
      if (warmUps > 0) {
        int runs = runs(warmUps, length);
        long nanos = time(work, shape, length, runs, estimate);
        estimate = Duration.ofNanos(nanos / runs / length);
      }
      int runs = runs(iterations.orElse(LEAST_ITERATIONS), length);
      int times = iterations.isPresent() ? 1 : rounds;
      long nanos = median(times, work, shape, length, runs, estimate);
      while (iterations.isEmpty() && nanos < leastTime.toNanos() && runs < MOST_ITERATIONS) {
        estimate = Duration.ofNanos(nanos / runs / length);
        double missing = 1.2 * leastTime.toNanos() / Math.max(1, nanos);
        runs = (int) Math.min(MOST_ITERATIONS, Math.ceil(runs * Math.max(2, missing)));
        nanos = median(times, work, shape, length, runs, estimate);
      }
      return nanos / 1e3 / runs / length;
    }
  }

  /**
   * Calls as they are measured, waited for: one, or where the input stays as it is a whole graph.
   */
  void once(MeasuredLibrary library, PerfCase shape, Placement placement)
      throws InterruptedException {
    int length = placement == Placement.OUT_OF_PLACE ? plan.graph().orElse(1) : 1;
    try (PreparedCalls work = library.prepare(shape, placement, length, plan.graph().isPresent())) {
      await(work.run(1), shape, length);
    }
  }

  private Duration estimate(MeasuredLibrary library, PerfCase shape, Placement placement)
      throws InterruptedException {
    try (PreparedCalls one = library.prepare(shape, placement, 1, false)) {
      return Duration.ofNanos(time(one, shape, 1, 1, plan.timeout()));
    }
  }

  /** As many calls as wanted, or fewer if so many might take longer than the time limit. */
  private int lengthFor(PerfCase shape, Duration estimate, int wanted) {
    long slowest = Math.max(1, LongStream.of(gather(estimate.toNanos())).max().orElseThrow());
    long most = plan.timeout().toNanos() / SHARE_OF_LIMIT / slowest;
    return (int) Math.max(1, Math.min(wanted, most));
  }

  /** How many runs of that length so many calls are. */
  static int runs(int calls, int length) {
    return (int) Math.max(1, ((long) calls + length - 1) / length);
  }

  /** The median of some measurements, or the first if that took long: the same on every rank. */
  private long median(
      int rounds, PreparedCalls work, PerfCase shape, int length, int runs, Duration estimate)
      throws InterruptedException {
    long[] nanos = new long[rounds];
    for (int i = 0; i < rounds; i++) {
      nanos[i] = measure(work, shape, length, runs, estimate);
      if (nanos[i] >= LONG.toNanos()) {
        return nanos[i];
      }
    }
    Arrays.sort(nanos);
    return nanos[rounds / 2];
  }

  /** The time of so many runs in nanoseconds, averaged over the ranks. */
  private long measure(PreparedCalls work, PerfCase shape, int length, int runs, Duration estimate)
      throws InterruptedException {
    rank.barrier(deadline());
    long[] times = gather(time(work, shape, length, runs, estimate));
    return Math.round(LongStream.of(times).average().orElseThrow());
  }

  /** Enqueues as much at once as its time limit allows, in two halves that follow each other. */
  private long time(PreparedCalls work, PerfCase shape, int length, int runs, Duration estimate)
      throws InterruptedException {
    long perRun = Math.max(1, estimate.toNanos()) * length;
    long allowed = plan.timeout().toNanos() / SHARE_OF_LIMIT / perRun;
    int half = (int) Math.max(1, Math.min(MOST_AT_ONCE, allowed));
    CompletableFuture<Void> before = null;
    long start = System.nanoTime();
    for (int left = runs; left > 0; left -= half) {
      int times = Math.min(left, half);
      CompletableFuture<Void> now = work.run(times);
      if (before != null) {
        await(before, shape, length * times);
      }
      before = now;
    }
    await(before, shape, length);
    return System.nanoTime() - start;
  }

  private void await(CompletableFuture<Void> completion, PerfCase shape, int length)
      throws InterruptedException {
    try {
      // The rank keeps the limit itself and knows whom to blame; this is for one that does not.
      completion.get(plan.timeout().plus(OWN_GRACE).toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          String.format(
              "%d %s did not complete on rank %d within %.3f s; see whether every rank still runs,"
                  + " or give a longer --timeout",
              length, shape, rank.rank(), plan.timeout().toNanos() / 1e9));
    } catch (ExecutionException | CancellationException e) {
      throw FluxCclException.from(e);
    }
  }

  /** A number of each rank, by rank. */
  long[] gather(long mine) {
    byte[] message = ByteBuffer.allocate(Long.BYTES).putLong(mine).array();
    return rank.allGather(message, deadline()).stream()
        .mapToLong(bytes -> ByteBuffer.wrap(bytes).getLong())
        .toArray();
  }

  private Deadline deadline() {
    return Deadline.after(plan.timeout());
  }
}
