// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.time.Duration;

/**
 * Ends a polling loop of a test that would otherwise hang. The limit is a minute, so that no slow
 * machine reaches it. Allocates nothing, so that loops under measurement may use it. A test that
 * checks a time which the library promises measures the time itself and has the tag {@code timed}.
 */
public final class HangLimit {
  private static final Duration LIMIT = Duration.ofSeconds(60);

  private HangLimit() {}

  /** Returns the time at which a loop begins. */
  public static long start() {
    return System.nanoTime();
  }

  /**
   * Throws if the limit has passed. Call it in each pass of the loop.
   *
   * @param began what {@link #start} has returned
   * @param missing the condition that the loop waits for, for the error
   */
  public static void check(long began, String missing) {
    if (System.nanoTime() - began > LIMIT.toNanos()) {
      throw new AssertionError("after " + LIMIT.toSeconds() + " s still not: " + missing);
    }
  }
}
