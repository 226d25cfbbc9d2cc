// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.common;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Times what all ranks enqueue, as one of them sees it. */
public final class Timing {
  private static final Duration LIMIT = Duration.ofSeconds(30);
  private static final int WARM_UP = 3;

  private Timing() {}

  /** A step that all ranks take together. */
  @FunctionalInterface
  public interface Step {
    /**
     * Enqueues it, or does it.
     *
     * @param round a number that no other call of this rank has had
     */
    void run(int round);
  }

  /**
   * Takes a step some times to warm up, meets the other ranks, and takes it {@code times} times.
   *
   * @param rank this rank; all ranks call this
   * @param firstRound of {@code times + 3} numbers for the step
   * @param times how often
   * @param step what to time
   * @return microseconds a step
   */
  public static double micros(LocalRank rank, int firstRound, int times, Step step) {
    int round = firstRound;
    for (int i = 0; i < WARM_UP; i++) {
      step.run(round++);
    }
    finish(rank);
    meet(rank);
    long begin = System.nanoTime();
    for (int i = 0; i < times; i++) {
      step.run(round++);
    }
    finish(rank);
    return (System.nanoTime() - begin) / 1e3 / times;
  }

  /** Returns the first round after a timing of {@code times} rounds. */
  public static int roundAfter(int firstRound, int times) {
    return firstRound + WARM_UP + times;
  }

  /** Waits until everything that the rank has enqueued is done; throws why it is not. */
  public static void finish(LocalRank rank) {
    rank.communicator()
        .inFlight(rank.stream().completion())
        .orTimeout(LIMIT.toMillis(), TimeUnit.MILLISECONDS)
        .join();
    FluxCclException failure = rank.communicator().failure();
    if (failure != null) {
      throw failure;
    }
  }

  /** Waits for all ranks to come here. */
  public static void meet(LocalRank rank) {
    rank.bootstrap().barrier(Deadline.after(LIMIT)).join();
  }
}
