package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** Runs ranks as threads of this JVM. */
final class InProcessRun {
  /** How long the other ranks have to notice by themselves that one has failed. */
  static final Duration GRACE = Duration.ofSeconds(5);

  private InProcessRun() {}

  /** The work of a rank. */
  @FunctionalInterface
  interface RankTask {
    /**
     * Runs a rank.
     *
     * @param rank from 0
     * @return how many elements of all ranks were wrong
     */
    long run(int rank) throws InterruptedException;
  }

  private record Outcome(long wrong, Throwable failure) {}

  /**
   * Runs all ranks and returns when all have ended. If one fails, the others are interrupted after
   * {@link #GRACE}, and the first failure is thrown.
   *
   * @param nRanks how many
   * @param task the work of each
   * @return how many elements were wrong
   */
  static long run(int nRanks, RankTask task) throws InterruptedException {
    BlockingQueue<Outcome> outcomes = new ArrayBlockingQueue<>(nRanks);
    Thread[] threads = new Thread[nRanks];
    for (int i = 0; i < nRanks; i++) {
      int rank = i;
      threads[i] = new Thread(() -> outcomes.add(outcome(task, rank)), "fluxccl-rank-" + rank);
      threads[i].setDaemon(true);
      threads[i].start();
    }
    try {
      return collect(outcomes, nRanks);
    } finally {
      interrupt(threads);
    }
  }

  private static Outcome outcome(RankTask task, int rank) {
    try {
      return new Outcome(task.run(rank), null);
    } catch (Throwable e) {
      return new Outcome(0, e);
    }
  }

  private static long collect(BlockingQueue<Outcome> outcomes, int nRanks)
      throws InterruptedException {
    long wrong = 0;
    for (int left = nRanks - 1; left >= 0; left--) {
      Outcome outcome = outcomes.take();
      if (outcome.failure() != null) {
        addOtherFailures(outcomes, left, outcome.failure());
        throw unchecked(outcome.failure());
      }
      wrong = Math.max(wrong, outcome.wrong());
    }
    return wrong;
  }

  private static void addOtherFailures(
      BlockingQueue<Outcome> outcomes, int others, Throwable failure) throws InterruptedException {
    Deadline deadline = Deadline.after(GRACE);
    for (int i = 0; i < others; i++) {
      Outcome outcome = outcomes.poll(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
      if (outcome == null) {
        return;
      }
      if (outcome.failure() != null && outcome.failure() != failure) {
        failure.addSuppressed(outcome.failure());
      }
    }
  }

  private static RuntimeException unchecked(Throwable failure) {
    if (failure instanceof Error error) {
      throw error;
    }
    return failure instanceof RuntimeException runtime ? runtime : FluxCclException.from(failure);
  }

  /** Interrupts ranks that still run, and waits a while for them to close. */
  private static void interrupt(Thread[] threads) throws InterruptedException {
    for (Thread thread : threads) {
      thread.interrupt();
    }
    Deadline deadline = Deadline.after(GRACE);
    for (Thread thread : threads) {
      thread.join(Math.max(1, deadline.remainingMillis()));
    }
  }
}
