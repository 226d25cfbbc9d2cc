package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.LongStream;

/**
 * Measures and checks all-reduce on one rank. Every rank runs the same plan; whatever decides how
 * it goes on is agreed on by all, so that they stay in step.
 */
final class AllReduceBenchmark {
  /** How many iterations are measured at least. */
  static final int LEAST_ITERATIONS = 20;

  /** How long is measured at least, when the number of iterations was left open. */
  static final Duration LEAST_TIME = Duration.ofMillis(20);

  private static final int MOST_ITERATIONS = 20_000;
  private static final int JIT_BATCH = 20;
  private static final long MOST_JIT_BYTES = 1 << 20;

  /** How much slower than just measured a batch may be before it counts as hung. */
  private static final int SLOWNESS = 10;

  private static final Duration OWN_GRACE = Duration.ofSeconds(2);
  private static final Duration LONGEST = Duration.ofDays(30);

  private final PerfRank rank;
  private final PerfPlan plan;
  private final PerfListener listener;

  private DataType patternType;
  private ReduceOp patternOp;
  private BufferContents contents;

  /**
   * A run.
   *
   * @param rank the rank; the caller closes it
   * @param plan what to measure, the same on every rank
   * @param listener told by rank 0 only
   */
  AllReduceBenchmark(PerfRank rank, PerfPlan plan, PerfListener listener) {
    this.rank = rank;
    this.plan = plan;
    this.listener = listener;
  }

  /**
   * Runs the plan.
   *
   * @return how many elements were wrong, on all ranks together
   * @throws InterruptedException if the thread was interrupted
   */
  long run() throws InterruptedException {
    rank.prepare(BufferContents.sizeFor(plan.maxBytes()));
    List<String> devices =
        rank.allGather(describe().getBytes(StandardCharsets.UTF_8), deadline()).stream()
            .map(bytes -> new String(bytes, StandardCharsets.UTF_8))
            .toList();
    boolean first = rank.rank() == 0;
    if (first) {
      listener.started(plan, devices);
    }
    warmUpJit();
    long wrong = 0;
    for (PerfPlan.Case next : plan.cases()) {
      PerfRow row = measure(next);
      wrong += row.wrong().orElse(0);
      if (first) {
        listener.measured(row);
      }
    }
    rank.barrier(deadline());
    if (first) {
      listener.finished(wrong);
    }
    return wrong;
  }

  private String describe() {
    return String.format(
        "Rank %2d Pid %6d on %s", rank.rank(), ProcessHandle.current().pid(), rank.device());
  }

  private void warmUpJit() throws InterruptedException {
    if (plan.jitWarmUp().isZero()) {
      return;
    }
    Deadline end = Deadline.after(plan.jitWarmUp());
    List<PerfPlan.Case> small =
        plan.cases().stream().filter(c -> c.bytes() <= MOST_JIT_BYTES).toList();
    List<PerfPlan.Case> cases = small.isEmpty() ? plan.cases().subList(0, 1) : small;
    // Rank 0's clock decides, and all hear of it, so that every rank runs as many.
    boolean goOn = true;
    for (int i = 0; goOn; i = (i + 1) % cases.size()) {
      Duration one = Duration.ofNanos(runBatch(cases.get(i), 1, plan.timeout()));
      runBatch(cases.get(i), JIT_BATCH, limit(JIT_BATCH, one));
      goOn = gather(end.expired() ? 0 : 1)[0] == 1;
    }
  }

  private PerfRow measure(PerfPlan.Case c) throws InterruptedException {
    BufferContents data = contents(c.type(), c.op());
    data.upload(c.count());
    rank.barrier(deadline());
    Duration estimate = warmUp(c);
    int iterations = plan.iterations().orElse(LEAST_ITERATIONS);
    long elapsed = measureBatch(c, iterations, estimate);
    while (plan.iterations().isEmpty()
        && elapsed < LEAST_TIME.toNanos()
        && iterations < MOST_ITERATIONS) {
      estimate = Duration.ofNanos(elapsed / iterations);
      double missing = 1.2 * LEAST_TIME.toNanos() / Math.max(1, elapsed);
      iterations = (int) Math.min(MOST_ITERATIONS, Math.ceil(iterations * Math.max(2, missing)));
      elapsed = measureBatch(c, iterations, estimate);
    }
    return new PerfRow(c, rank.nRanks(), elapsed / 1e3 / iterations, check(c, data));
  }

  /** Gives the time of one iteration as far as it is known, else the timeout. */
  private Duration warmUp(PerfPlan.Case c) throws InterruptedException {
    if (plan.warmUpIterations() == 0) {
      return plan.timeout();
    }
    Duration one = Duration.ofNanos(runBatch(c, 1, plan.timeout()));
    int others = plan.warmUpIterations() - 1;
    return others == 0 ? one : Duration.ofNanos(runBatch(c, others, limit(others, one)) / others);
  }

  /** The time of a batch in nanoseconds, averaged over the ranks. */
  private long measureBatch(PerfPlan.Case c, int iterations, Duration estimate)
      throws InterruptedException {
    Duration limit = limit(iterations, estimate);
    rank.barrier(deadline());
    long[] times = gather(runBatch(c, iterations, limit));
    return Math.round(LongStream.of(times).average().orElseThrow());
  }

  /** How long a batch may take until it counts as hung. */
  private Duration limit(int iterations, Duration estimate) {
    long slowness = estimate.compareTo(plan.timeout()) < 0 ? SLOWNESS : 1;
    Duration limit = plan.timeout().plus(estimate.multipliedBy(slowness * iterations));
    return limit.compareTo(LONGEST) < 0 ? limit : LONGEST;
  }

  private long runBatch(PerfPlan.Case c, int iterations, Duration limit)
      throws InterruptedException {
    long start = System.nanoTime();
    for (int i = 0; i < iterations; i++) {
      rank.enqueueAllReduce(c.count(), c.type(), c.op());
    }
    await(rank.completion(limit), c, iterations, limit);
    return System.nanoTime() - start;
  }

  private void await(
      CompletableFuture<Void> completion, PerfPlan.Case c, int iterations, Duration limit)
      throws InterruptedException {
    try {
      // The rank keeps the limit itself and knows whom to blame; this is for one that does not.
      completion.get(limit.plus(OWN_GRACE).toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          String.format(
              "%d all-reduce of %d %s (%s) did not complete on rank %d within %.3f s; see whether"
                  + " every rank still runs, or give a longer --timeout",
              iterations,
              c.count(),
              c.type().label(),
              c.op().label(),
              rank.rank(),
              limit.toNanos() / 1e9));
    } catch (ExecutionException | CancellationException e) {
      throw FluxCclException.from(e);
    }
  }

  /**
   * No barrier between upload and all-reduce: a collective that reads a peer's data before that
   * peer has called it shows here.
   */
  private OptionalLong check(PerfPlan.Case c, BufferContents data) throws InterruptedException {
    if (plan.checks() == 0) {
      return OptionalLong.empty();
    }
    long wrong = 0;
    for (int i = 0; i < plan.checks(); i++) {
      data.upload(c.count());
      runBatch(c, 1, plan.timeout());
      wrong += data.wrongElements(c.count());
    }
    return OptionalLong.of(LongStream.of(gather(wrong)).sum());
  }

  private BufferContents contents(DataType type, ReduceOp op) {
    if (contents == null || patternType != type || patternOp != op) {
      contents = new BufferContents(rank, new ReductionPattern(type, op, rank.nRanks()), type);
      patternType = type;
      patternOp = op;
    }
    return contents;
  }

  private long[] gather(long mine) {
    byte[] message = ByteBuffer.allocate(Long.BYTES).putLong(mine).array();
    return rank.allGather(message, deadline()).stream()
        .mapToLong(bytes -> ByteBuffer.wrap(bytes).getLong())
        .toArray();
  }

  private Deadline deadline() {
    return Deadline.after(plan.timeout());
  }
}
