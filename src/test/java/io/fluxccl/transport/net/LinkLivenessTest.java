// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.LinkLiveness.Action.CONFIRM;
import static io.fluxccl.transport.net.LinkLiveness.Action.NONE;
import static io.fluxccl.transport.net.LinkLiveness.Action.REPLACE;
import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The decision that a link is lost, with a clock of the test. */
class LinkLivenessTest {
  private static final long STEP_MS = 20;

  private CompletableFuture<Boolean> answered = CompletableFuture.completedFuture(false);
  private int asked;
  private LinkLiveness liveness = watch(Duration.ofMinutes(10));
  private long nowMs;
  private long arrived;

  private LinkLiveness watch(Duration limit) {
    return new LinkLiveness(
        () -> {
          asked++;
          return answered;
        },
        limit.toNanos(),
        0);
  }

  private LinkLiveness.Action after(long ms, boolean reads, boolean owes, boolean awaits) {
    nowMs += ms;
    return liveness.check(Duration.ofMillis(nowMs).toNanos(), arrived, reads, owes, awaits);
  }

  private LinkLiveness.Action silentAfter(long ms) {
    return after(ms, true, false, true);
  }

  /** Waits in small steps until the link is to be replaced, and returns how long that took. */
  private long silentUntilReplaced(long atMostMs) {
    long start = nowMs;
    while (silentAfter(STEP_MS) != REPLACE) {
      assertThat(nowMs - start).isLessThan(atMostMs);
    }
    return nowMs - start;
  }

  private void staySilent(long ms) {
    for (long end = nowMs + ms; nowMs < end; ) {
      assertThat(silentAfter(STEP_MS)).isNotEqualTo(REPLACE);
    }
  }

  @Test
  void shouldReplaceALinkAfterFiveSecondsIfNoSystemAcknowledges() {
    assertThat(silentUntilReplaced(10_000)).isBetween(5_000L, 5_100L);
    assertThat(Duration.ofNanos(liveness.silentNs())).isGreaterThan(Duration.ofSeconds(5));
  }

  @Test
  void shouldKeepALinkWhilePeersSystemAcknowledges() {
    answered = CompletableFuture.completedFuture(true);
    staySilent(30_000);
    assertThat(asked).as("questions in 25 s").isBetween(20, 30);
    answered = CompletableFuture.completedFuture(false);
    assertThat(silentUntilReplaced(2_000)).isLessThan(1_200);
  }

  @Test
  void shouldAwaitTheAnswerOfItsSystem() {
    answered = new CompletableFuture<>();
    staySilent(6_000);
    assertThat(asked).isOne();
    answered.complete(false);
    assertThat(silentAfter(STEP_MS)).isEqualTo(REPLACE);
  }

  @ParameterizedTest
  @CsvSource({"600, 60", "60, 30", "4, 5"})
  void shouldReplaceALinkThatOnlyAProxyAcknowledges(int limitSeconds, int seconds) {
    answered = CompletableFuture.completedFuture(true);
    liveness = watch(Duration.ofSeconds(limitSeconds));
    assertThat(silentUntilReplaced(70_000)).isBetween(seconds * 1_000L, seconds * 1_000L + 100);
  }

  @Test
  void shouldNotCountAPauseOfThisProcessAsSilence() {
    staySilent(4_500);
    // Late cycles of 800 ms count as 100 ms each.
    for (int i = 0; i < 4; i++) {
      assertThat(silentAfter(800)).isNotEqualTo(REPLACE);
    }
    assertThat(silentUntilReplaced(1_000)).isBetween(80L, 200L);
  }

  @Test
  void shouldRestartTheSilenceAfterALongPauseOfThisProcess() {
    staySilent(4_900);
    assertThat(silentAfter(1_000)).isNotEqualTo(REPLACE);
    assertThat(silentUntilReplaced(10_000)).isBetween(5_000L, 5_100L);
  }

  @Test
  void shouldRestartTheSilenceWhenAMessageArrives() {
    staySilent(4_900);
    arrived++;
    staySilent(4_900);
  }

  @Test
  void shouldNotCountTimeWithoutMessagesToConfirmOrWithoutReading() {
    for (int i = 0; i < 1_000; i++) {
      assertThat(after(STEP_MS, true, false, false)).isEqualTo(NONE);
    }
    for (int i = 0; i < 1_000; i++) {
      assertThat(after(STEP_MS, false, false, true)).isNotEqualTo(REPLACE);
    }
  }

  @Test
  void shouldConfirmReceivedMessagesAfterFiveMilliseconds() {
    assertThat(after(3, true, true, false)).isEqualTo(NONE);
    assertThat(after(3, true, true, false)).isEqualTo(CONFIRM);
    assertThat(after(3, true, false, false)).isEqualTo(NONE);
  }

  @ParameterizedTest
  @CsvSource({"false, false", "true, true"})
  void shouldConfirmEverySecondWhileItCannotReadOrHearsNothing(boolean reads, boolean awaits) {
    int confirmed = 0;
    for (int i = 0; i < 4_500 / STEP_MS; i++) {
      confirmed += after(STEP_MS, reads, false, awaits) == CONFIRM ? 1 : 0;
    }
    assertThat(confirmed).isEqualTo(4);
  }
}
