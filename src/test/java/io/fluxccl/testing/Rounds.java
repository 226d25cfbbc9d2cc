// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

/**
 * The number of times that a test repeats what fails rarely: a few in {@code ./mvnw verify} and
 * {@code .ci/run}, many under {@code -Plong}, which {@code .ci/nightly} runs.
 */
public final class Rounds {
  /** Whether this is a long run, {@code ./mvnw -Plong}. */
  public static final boolean LONG = Boolean.getBoolean("fluxccl.test.long");

  /**
   * The seed of tests that search at random, {@code -Dfluxccl.test.seed}. {@code .ci/run} derives
   * it from the commit and prints it; without it the seed is 0.
   */
  public static final long SEED = Long.getLong("fluxccl.test.seed", 0);

  private Rounds() {}

  /**
   * Returns the number of repetitions.
   *
   * @param few in the loop that a developer waits for
   * @param many in the long run
   */
  public static int of(int few, int many) {
    return LONG ? many : few;
  }
}
