// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** A member's clock; {@link JoinModelTest} tests the protocol. */
class MemberTest {
  private static final long INTERVAL = TimeUnit.MILLISECONDS.toNanos(200);
  private static final JoinRules RULES =
      new JoinRules(Duration.ofNanos(INTERVAL), Duration.ofSeconds(2));
  private static final InetSocketAddress PEER = TcpRanks.loopback(2);

  private final LocalProcess process =
      new LocalProcess(
          new Contact(TcpRanks.loopback(1), 1, 1, 1, 0, ""), RULES, () -> new Nonce(1, 1));
  private final Member member = new Member(process);

  /** Ticks at intervals, and returns whether the peer is silent after them. */
  private boolean isSilentAfter(int ticks, long interval) {
    long now = INTERVAL;
    process.heard(PEER, now);
    member.tick(now);
    for (int i = 0; i < ticks; i++) {
      now += interval;
      member.tick(now);
    }
    return process.isSilent(PEER, now);
  }

  @Test
  void shouldCountTheSilenceOfAPeerWhileItKeepsUp() {
    int enough = (int) (RULES.leaseNanos() / INTERVAL) + 2;
    assertThat(isSilentAfter(enough, INTERVAL)).isTrue();
  }

  @Test
  void shouldNotCountItsOwnDelaysAsSilence() {
    // Each delay is shorter than the one after which a process knows that it was suspended.
    assertThat(isSilentAfter(3, RULES.leaseNanos() - 1)).isFalse();
  }
}
