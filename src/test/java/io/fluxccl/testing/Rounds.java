// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

/** How often a test repeats what fails rarely: a few times in the loop, many times under -Plong. */
public final class Rounds {
  /** Whether this is a long run, {@code ./mvnw -Plong}. */
  public static final boolean LONG = Boolean.getBoolean("fluxccl.test.long");

  /** The first seed of tests with random input. */
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
