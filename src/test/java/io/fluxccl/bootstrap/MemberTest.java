// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ErrorCode;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Formed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.CastVote;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Send;
import io.fluxccl.bootstrap.Member.State;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
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

  /** Returns a process that is rank 0 of two, beside the peer. */
  private long joinPeer(long now) {
    Contact peer = new Contact(PEER, 2, 1, 1, 0, "");
    Roster roster =
        new Roster(
            new Term(1, 1, 0), new Nonce(1, 2), List.of(process.self, peer), List.of(-1, -1));
    member.join(request(Kind.FIXED), now);
    member.received(PEER, new Formed(roster), now);
    assertThat(member.state()).isEqualTo(State.MEMBER);
    return now;
  }

  private static JoinRequest request(Kind kind) {
    return new JoinRequest(kind, 0, 2, 2, Duration.ZERO, Duration.ofSeconds(30), Map.of());
  }

  private long tickFor(long nanos, long from) {
    long now = from;
    for (; now < from + nanos; now += INTERVAL) {
      member.tick(now);
    }
    return now;
  }

  /** Joins the next group. Returns the rosters that the member proposes before the peer sends. */
  private List<Roster> proposals(long now) {
    List<Roster> proposals = new ArrayList<>();
    Deque<JoinOutput> outputs = new ArrayDeque<>(member.join(request(Kind.SHRINKING), now));
    while (!outputs.isEmpty()) {
      JoinOutput next = outputs.poll();
      if (next instanceof CastVote vote) {
        Ballot ballot = RULES.vote(Ballot.EMPTY, vote.request());
        outputs.addAll(member.voted(vote.base(), ballot, now));
      } else if (next instanceof Send send && send.message() instanceof Propose propose) {
        proposals.add(propose.roster());
      } else if (next instanceof Send send && process.is(send.to())) {
        outputs.addAll(member.received(send.to(), send.message(), now));
      }
    }
    return proposals;
  }

  private void failAt(long now) {
    member.fail(new Failure(ErrorCode.ABORTED, 0, "renewed"), now);
  }

  @Test
  void shouldNotCountSilenceBetweenAFailureAndTheNextJoin() {
    long failed = tickFor(2 * INTERVAL, joinPeer(INTERVAL));
    failAt(failed);
    long joined = tickFor(5 * RULES.leaseNanos(), failed);
    assertThat(proposals(joined)).isEmpty();
    assertThat(process.isSilent(PEER, joined)).isFalse();
    assertThat(process.isSilent(PEER, tickFor(2 * RULES.leaseNanos(), joined))).isTrue();
  }

  @Test
  void shouldRememberSilenceBeforeAFailure() {
    long silent = tickFor(RULES.leaseNanos() + 2 * INTERVAL, joinPeer(INTERVAL));
    assertThat(process.isSilent(PEER, silent)).isTrue();
    failAt(silent);
    assertThat(proposals(tickFor(5 * RULES.leaseNanos(), silent)))
        .singleElement()
        .extracting(Roster::size)
        .isEqualTo(1);
  }

  @Test
  void shouldNotCountItsOwnDelaysAsSilence() {
    // Each delay is shorter than the one after which a process knows that it was suspended.
    assertThat(isSilentAfter(3, RULES.leaseNanos() - 1)).isFalse();
  }
}
