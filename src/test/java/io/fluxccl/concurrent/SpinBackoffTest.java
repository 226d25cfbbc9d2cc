// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class SpinBackoffTest {
  private static final long STEP_NS = TimeUnit.MILLISECONDS.toNanos(1);

  private final SpinBackoff backoff = new SpinBackoff();

  // nanoTime may be anything, and may wrap around.
  private long now = Long.MAX_VALUE - TimeUnit.MILLISECONDS.toNanos(5);

  /** A wait in vain some nanoseconds after the one before. */
  private boolean spinTimeoutAfter(long nanos) {
    now += nanos;
    return backoff.onSpinTimeout(now);
  }

  /** How long waits in vain insist, one behind the other. */
  private long trial() {
    long began = now;
    while (spinTimeoutAfter(STEP_NS)) {
      assertThat(now - began).isLessThan(10 * SpinBackoff.TRIAL_NS);
    }
    return now - began;
  }

  /** How long they then do not. */
  private long rest() {
    long began = now;
    while (!spinTimeoutAfter(STEP_NS)) {
      assertThat(now - began).isLessThan(10 * SpinBackoff.LONGEST_REST_NS);
    }
    return now - began;
  }

  @Test
  void shouldInsistForATrialAndThenRest() {
    assertThat(trial()).isBetween(SpinBackoff.TRIAL_NS, SpinBackoff.TRIAL_NS + 2 * STEP_NS);
    assertThat(spinTimeoutAfter(STEP_NS)).isFalse();
    assertThat(rest()).isLessThanOrEqualTo(SpinBackoff.SHORTEST_REST_NS);
    assertThat(spinTimeoutAfter(STEP_NS)).isTrue();
  }

  @Test
  void shouldRestLongerAfterEachTrialInVainUpToALimit() {
    long expected = SpinBackoff.SHORTEST_REST_NS;
    for (int i = 0; i < 8; i++) {
      trial();
      assertThat(rest()).isBetween(expected, expected + 2 * STEP_NS);
      expected = Math.min(2 * expected, SpinBackoff.LONGEST_REST_NS);
    }
    assertThat(expected).isEqualTo(SpinBackoff.LONGEST_REST_NS);
  }

  @Test
  void shouldInsistWhenWaitsInVainAreFarApart() {
    for (int i = 0; i < 100; i++) {
      assertThat(spinTimeoutAfter(SpinBackoff.MEMORY_NS + 1)).isTrue();
    }
  }

  @Test
  void shouldForgetFormerTrialsWhenAllWentWellForLong() {
    trial();
    rest();
    trial();
    rest();
    spinTimeoutAfter(2 * SpinBackoff.LONGEST_REST_NS);
    trial();

    assertThat(rest())
        .isBetween(SpinBackoff.SHORTEST_REST_NS - STEP_NS, SpinBackoff.SHORTEST_REST_NS + STEP_NS);
  }
}
