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

  /** Reports a spin timeout some nanoseconds after the previous one. */
  private boolean spinTimeoutAfter(long nanos) {
    now += nanos;
    return backoff.onSpinTimeout(now);
  }

  /** Returns how long consecutive timed-out waits keep spinning. */
  private long trial() {
    long began = now;
    while (spinTimeoutAfter(STEP_NS)) {
      assertThat(now - began).isLessThan(10 * SpinBackoff.TRIAL_NS);
    }
    return now - began;
  }

  /** Returns how long waits then do not spin. */
  private long rest() {
    long began = now;
    while (!spinTimeoutAfter(STEP_NS)) {
      assertThat(now - began).isLessThan(10 * SpinBackoff.LONGEST_REST_NS);
    }
    return now - began;
  }

  @Test
  void shouldSpinForATrialAndThenRest() {
    assertThat(trial()).isBetween(SpinBackoff.TRIAL_NS, SpinBackoff.TRIAL_NS + 2 * STEP_NS);
    assertThat(spinTimeoutAfter(STEP_NS)).isFalse();
    assertThat(rest()).isLessThanOrEqualTo(SpinBackoff.SHORTEST_REST_NS);
    assertThat(spinTimeoutAfter(STEP_NS)).isTrue();
  }

  @Test
  void shouldRestLongerAfterEachFailedTrialUpToALimit() {
    long expected = SpinBackoff.SHORTEST_REST_NS;
    for (int i = 0; i < 8; i++) {
      trial();
      assertThat(rest()).isBetween(expected, expected + 2 * STEP_NS);
      expected = Math.min(2 * expected, SpinBackoff.LONGEST_REST_NS);
    }
    assertThat(expected).isEqualTo(SpinBackoff.LONGEST_REST_NS);
  }

  @Test
  void shouldKeepSpinningIfTimeoutsAreFarApart() {
    for (int i = 0; i < 100; i++) {
      assertThat(spinTimeoutAfter(SpinBackoff.MEMORY_NS + 1)).isTrue();
    }
  }

  @Test
  void shouldForgetFailedTrialsAfterALongTimeWithoutTimeouts() {
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
