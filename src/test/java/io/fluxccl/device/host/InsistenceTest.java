package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class InsistenceTest {
  private static final long STEP_NS = TimeUnit.MILLISECONDS.toNanos(1);

  private final Insistence insistence = new Insistence();

  // nanoTime may be anything, and may wrap around.
  private long now = Long.MAX_VALUE - TimeUnit.MILLISECONDS.toNanos(5);

  /** A wait in vain some nanoseconds after the one before. */
  private boolean inVainAfter(long nanos) {
    now += nanos;
    return insistence.inVain(now);
  }

  /** How long waits in vain insist, one behind the other. */
  private long trial() {
    long began = now;
    while (inVainAfter(STEP_NS)) {
      assertThat(now - began).isLessThan(10 * Insistence.TRIAL_NS);
    }
    return now - began;
  }

  /** How long they then do not. */
  private long rest() {
    long began = now;
    while (!inVainAfter(STEP_NS)) {
      assertThat(now - began).isLessThan(10 * Insistence.LONGEST_REST_NS);
    }
    return now - began;
  }

  @Test
  void shouldInsistForATrialAndThenRest() {
    assertThat(trial()).isBetween(Insistence.TRIAL_NS, Insistence.TRIAL_NS + 2 * STEP_NS);
    assertThat(inVainAfter(STEP_NS)).isFalse();
    assertThat(rest()).isLessThanOrEqualTo(Insistence.SHORTEST_REST_NS);
    assertThat(inVainAfter(STEP_NS)).isTrue();
  }

  @Test
  void shouldRestLongerAfterEachTrialInVainUpToALimit() {
    long expected = Insistence.SHORTEST_REST_NS;
    for (int i = 0; i < 8; i++) {
      trial();
      assertThat(rest()).isBetween(expected, expected + 2 * STEP_NS);
      expected = Math.min(2 * expected, Insistence.LONGEST_REST_NS);
    }
    assertThat(expected).isEqualTo(Insistence.LONGEST_REST_NS);
  }

  @Test
  void shouldInsistWhenWaitsInVainAreFarApart() {
    for (int i = 0; i < 100; i++) {
      assertThat(inVainAfter(Insistence.MEMORY_NS + 1)).isTrue();
    }
  }

  @Test
  void shouldForgetFormerTrialsWhenAllWentWellForLong() {
    trial();
    rest();
    trial();
    rest();
    inVainAfter(2 * Insistence.LONGEST_REST_NS);
    trial();

    assertThat(rest())
        .isBetween(Insistence.SHORTEST_REST_NS - STEP_NS, Insistence.SHORTEST_REST_NS + STEP_NS);
  }
}
