package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** Runs ranks as threads of this JVM. */
final class InProcessRun {
  /** How long the others have, once a rank failed, to notice it by themselves. */
  static final Duration GRACE = Duration.ofSeconds(5);

  private InProcessRun() {}

  /** What a rank does. */
  @FunctionalInterface
  interface RankTask {
    /**
     * Runs the rank.
     *
     * @param rank from 0
     * @return how many elements of all ranks were wrong
     */
    long run(int rank) throws InterruptedException;
  }

  private record Outcome(long wrong, Throwable failure) {}

  /**
   * Runs all ranks and returns when all have ended. If one fails the others are interrupted after
   * {@link #GRACE}, and the first failure is thrown.
   *
   * @param nRanks how many
   * @param task what each does
   * @return what they agreed on
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
      long wrong = 0;
      for (int i = 0; i < nRanks; i++) {
        Outcome outcome = outcomes.take();
        if (outcome.failure() != null) {
          awaitOthers(outcomes, nRanks - i - 1, outcome.failure());
          throw unchecked(outcome.failure());
        }
        wrong = Math.max(wrong, outcome.wrong());
      }
      return wrong;
    } finally {
      end(threads);
    }
  }

  /** Interrupts what still runs and gives it a while to close its rank. */
  private static void end(Thread[] threads) throws InterruptedException {
    for (Thread thread : threads) {
      thread.interrupt();
    }
    Deadline deadline = Deadline.after(GRACE);
    for (Thread thread : threads) {
      thread.join(Math.max(1, deadline.remainingMillis()));
    }
  }

  private static Outcome outcome(RankTask task, int rank) {
    try {
      return new Outcome(task.run(rank), null);
    } catch (Throwable e) {
      return new Outcome(0, e);
    }
  }

  private static void awaitOthers(BlockingQueue<Outcome> outcomes, int others, Throwable failure)
      throws InterruptedException {
    long end = System.nanoTime() + GRACE.toNanos();
    for (int i = 0; i < others; i++) {
      Outcome outcome = outcomes.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
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
}
