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
 * Runs a test of JUnit 5 on the ranks of a job in this JVM, {@link LocalRanks}. With a parameter of
 * type {@link LocalRank}, {@code Rank} or {@code Collectives}, the method runs once for each rank,
 * on threads of their own and at the same time; with {@link LocalRanks} it runs once.
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
 * <p>Behind each test the ranks are closed, and the test fails if it has left something behind
 * ({@link ResourceLeaks}). An application that uses this adds {@code
 * org.junit.jupiter:junit-jupiter-api}.
 */
@Experimental
@Documented
@Target({ElementType.METHOD, ElementType.TYPE, ElementType.ANNOTATION_TYPE})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(RanksExtension.class)
public @interface Ranks {
  /** How many ranks. */
  int value();

  /** On how many pretended hosts, each with as many ranks; see {@link LocalRanks#ofHosts}. */
  int hosts() default 1;

  /** Whether on GPUs instead of the host device; see {@link LocalRanks#onGpus}. */
  boolean onGpus() default false;

  /** Limit for all ranks together. */
  long seconds() default 60;

  /** Whether a test fails that leaves something behind. Needs tests that run one by one. */
  boolean leakCheck() default true;
}
