// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.time.Duration;
import java.util.concurrent.CompletionService;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Runs ranks as threads of this JVM. */
final class InProcessRun {
  /** The time in which the other ranks must notice by themselves that one has failed. */
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

  /**
   * Runs all ranks and returns when all have ended. If one fails, the others are interrupted after
   * {@link #GRACE}, and the first failure is thrown.
   *
   * @param nRanks how many
   * @param task the work of each
   * @return how many elements were wrong
   */
  static long run(int nRanks, RankTask task) throws InterruptedException {
    ExecutorService threads = Executors.newFixedThreadPool(nRanks, InProcessRun::daemon);
    CompletionService<Long> outcomes = new ExecutorCompletionService<>(threads);
    for (int i = 0; i < nRanks; i++) {
      int rank = i;
      outcomes.submit(() -> task.run(rank));
    }
    int left = nRanks;
    long wrong = 0;
    try {
      while (left-- > 0) {
        wrong = Math.max(wrong, outcomes.take().get());
      }
      return wrong;
    } catch (ExecutionException e) {
      addOtherFailures(outcomes, left, e.getCause());
      throw unchecked(e.getCause());
    } finally {
      // Ranks that still run are interrupted, and have a while to close.
      threads.shutdownNow();
      threads.awaitTermination(GRACE.toNanos(), TimeUnit.NANOSECONDS);
    }
  }

  private static Thread daemon(Runnable task) {
    Thread thread = new Thread(task, "fluxccl-rank");
    thread.setDaemon(true);
    return thread;
  }

  private static void addOtherFailures(
      CompletionService<Long> outcomes, int others, Throwable failure) throws InterruptedException {
    Deadline deadline = Deadline.after(GRACE);
    for (int i = 0; i < others; i++) {
      Future<Long> outcome = outcomes.poll(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
      if (outcome == null) {
        return;
      }
      try {
        outcome.get();
      } catch (ExecutionException e) {
        if (e.getCause() != failure) {
          failure.addSuppressed(e.getCause());
        }
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
