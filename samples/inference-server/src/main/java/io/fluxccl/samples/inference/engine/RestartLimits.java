// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.time.Duration;

/**
 * Limits of the generations that rank 0 begins again after failures.
 *
 * @param most the most generations in a row that may fail without success: before a token, before a
 *     request was found to cause the failure, and before {@link #HEALTHY}. One more ends the server
 * @param first the wait before the second one in a row is begun again; doubles with each failure
 * @param longest the longest wait
 */
public record RestartLimits(int most, Duration first, Duration longest) {
  /** Ten in a row, with waits of 16 s in all. */
  public static final RestartLimits DEFAULT =
      new RestartLimits(10, Duration.ofMillis(100), Duration.ofSeconds(5));

  /** A generation that served for this long is a success. */
  static final Duration HEALTHY = Duration.ofSeconds(5);

  private static final int MOST_DOUBLINGS = 20;

  /** Refuses negative numbers. */
  public RestartLimits {
    if (most < 0 || first.isNegative() || longest.isNegative()) {
      throw new IllegalArgumentException(
          "failures=" + most + ", waits of " + first + " to " + longest + "; give 0 or more");
    }
  }

  /** Returns the wait after a number of failures in a row; zero after the first one. */
  Duration wait(int failures) {
    if (failures < 2) {
      return Duration.ZERO;
    }
    Duration wait = first.multipliedBy(1L << Math.min(MOST_DOUBLINGS, failures - 2));
    return wait.compareTo(longest) < 0 ? wait : longest;
  }
}
