// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.concurrent.SpinPolicy.SpinBackoff;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class SpinPolicyTest {
  /** Starts and ends waits of several threads at once; prints how often an end was missed. */
  static final class Racing {
    private static final int THREADS = 4;
    private static final int ROUNDS = 20_000;

    public static void main(String[] args) throws Exception {
      // One waiting thread has a core; two are too many.
      SpinPolicy.setProcessesOnHost(Runtime.getRuntime().availableProcessors());
      CyclicBarrier barrier = new CyclicBarrier(THREADS + 1);
      for (int i = 0; i < THREADS; i++) {
        Thread thread = new Thread(() -> race(barrier), "racer");
        thread.setDaemon(true);
        thread.start();
      }
      int stale = 0;
      for (int round = 0; round < ROUNDS; round++) {
        barrier.await();
        barrier.await();
        stale += SpinPolicy.isCrowded() || SpinPolicy.pollsBeforeYield() == 1 ? 1 : 0;
      }
      System.out.println(stale);
    }

    private static void race(CyclicBarrier barrier) {
      try {
        while (true) {
          barrier.await();
          SpinPolicy.enter();
          SpinPolicy.exit();
          barrier.await();
        }
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
  }

  @Test
  void shouldNotBeCrowdedAfterAllThreadsHaveEndedTheirWaits() {
    try (ProcessRank process = TestJvms.start(Racing.class)) {
      assertThat(process.readLine()).isEqualTo("0");
    }
  }

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
