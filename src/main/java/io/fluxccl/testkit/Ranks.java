// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.Experimental;
import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Runs a test of JUnit 5 on the ranks of a job in this JVM, {@link LocalRanks}. A method with a
 * parameter of type {@link LocalRank}, {@code Rank} or {@code Collectives} runs once for each rank,
 * at the same time, on separate threads. With {@link LocalRanks} it runs once.
 *
 * <pre>{@code
 * @Test
 * @Ranks(4)
 * void shouldCountTheRanks(LocalRank rank, Collectives collectives) {
 *   IntView one = rank.device().allocateInts(1);
 *   ...
 * }
 * }</pre>
 *
 * <p>After each test the ranks are closed, and the test fails if it has leaked resources ({@link
 * ResourceLeaks}). An application that uses this adds {@code org.junit.jupiter:junit-jupiter-api}.
 */
@Experimental
@Documented
@Target({ElementType.METHOD, ElementType.TYPE, ElementType.ANNOTATION_TYPE})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RanksExtension.class)
public @interface Ranks {
  /** The number of ranks. */
  int value();

  /**
   * The number of pretended hosts, each with equally many ranks; see {@link LocalRanks#ofHosts}.
   */
  int hosts() default 1;

  /** Whether on GPUs instead of the host device; see {@link LocalRanks#onGpus}. */
  boolean onGpus() default false;

  /** Limit for all ranks together. */
  long seconds() default 60;

  /** Whether a test fails if it leaks resources. Needs tests that run one by one. */
  boolean leakCheck() default true;
}
