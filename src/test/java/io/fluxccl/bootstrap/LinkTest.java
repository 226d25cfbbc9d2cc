// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.in;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.testing.Ports;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A link of a rank whose connection is reset, with a peer that sends single frames. */
@Timeout(60)
class LinkTest {
  private static final int MESSAGE_LIMIT = 1 << 16;

  private final int port = Ports.reserved();
  private final BootstrapOptions options =
      BootstrapOptions.builder().secret(null).messageLimit(MESSAGE_LIMIT).build();
  private RawPeer peer;
  private TcpBootstrap rank;

  @BeforeEach
  void open() throws IOException {
    peer = new RawPeer();
  }

  @AfterEach
  void close() {
    peer.close();
    rank.close();
  }

  /** Forms a group of a rank and the peer, which has opened their link. */
  private InetSocketAddress joinAsRank1() throws IOException {
    rank = TcpBootstrap.create(0, 2, options);
    CompletableFuture<Void> joined = rank.initialize("127.0.0.1:" + port);
    Roster roster = peer.join(1, 2, TcpRanks.loopback(port));
    await(joined);
    return roster.address(0);
  }

  private void send(int number, int bytes) {
    rank.send(1, 7, ByteBuffer.allocate(bytes).putInt(0, number).array(), in(20_000));
  }

  private int readNumber() throws IOException {
    return ByteBuffer.wrap(peer.read(Data.class).message()).getInt();
  }

  /** Sends messages, and waits until the rank has the last one. */
  private void deliver(int count) throws IOException {
    for (int i = 0; i < count; i++) {
      StreamKey key = new StreamKey(0, StreamKey.Space.TAGGED, 9, 0);
      peer.send(new Data(rank.roster().nonce(), key, new byte[] {(byte) i}));
    }
    for (int i = 0; i < count; i++) {
      assertThat(await(rank.recv(1, 9, in(20_000)))).containsExactly(i);
    }
  }

  @Test
  void shouldResendUnreceivedMessagesOnResume() throws IOException {
    InetSocketAddress at = joinAsRank1();
    for (int number = 0; number < 3; number++) {
      send(number, 10);
    }
    assertThat(readNumber()).isZero();
    assertThat(readNumber()).isEqualTo(1);
    peer.reset();
    send(3, 10);
    assertThat(peer.resume(at).admission()).isEqualTo(Admission.WELCOME);
    assertThat(readNumber()).isEqualTo(2);
    assertThat(readNumber()).isEqualTo(3);
    deliver(3);
    assertThat(rank.failure()).isNotDone();
  }

  @Test
  void shouldConfirmMessagesAndDropConfirmedOnes() throws IOException {
    InetSocketAddress at = joinAsRank1();
    deliver(64);
    assertThat(peer.read(Confirm.class).received()).isGreaterThanOrEqualTo(64);
    send(0, 10);
    send(1, 10);
    assertThat(readNumber()).isZero();
    long before = peer.received();
    peer.send(new Confirm(before));
    deliver(1);
    peer.reset();
    assertThat(peer.resumeFrom(before - 1, at).admission()).isEqualTo(Admission.NO_LINK);
    assertThat(peer.resume(at).received()).isGreaterThanOrEqualTo(65);
    assertThat(readNumber()).isEqualTo(1);
  }

  @Test
  void shouldRefuseToResumeIfNeededMessagesWereDropped() throws IOException {
    InetSocketAddress at = joinAsRank1();
    long before = peer.received();
    int count = BootstrapFrameCodec.CONTROL_LIMIT / MESSAGE_LIMIT + 10;
    for (int number = 0; number < count; number++) {
      send(number, MESSAGE_LIMIT);
    }
    await(rank.send(0, 7, new byte[1], in(20_000))); // after the others
    peer.reset();
    assertThat(peer.resumeFrom(before, at).admission()).isEqualTo(Admission.NO_LINK);
    assertThat(peer.resumeFrom(before + count - 2, at).admission()).isEqualTo(Admission.WELCOME);
    assertThat(readNumber()).isEqualTo(count - 2);
  }

  @Test
  void shouldRefuseAResumeOfAnotherSession() throws IOException {
    InetSocketAddress at = joinAsRank1();
    peer.reset();
    byte[] other = SessionKey.nonce(BootstrapFrameCodec.NONCE_BYTES);
    assertThat(peer.resume(at, other, 0).admission()).isEqualTo(Admission.NO_LINK);
    assertThat(peer.resume(at).admission()).isEqualTo(Admission.WELCOME);
    deliver(1);
  }

  @Test
  void shouldNotResumeAfterAGoodbye() throws IOException {
    InetSocketAddress at = joinAsRank1();
    peer.send(new Goodbye());
    assertFails(rank.recv(1, 9, in(20_000)), RemoteFailure.class, "has left");
    assertThat(peer.resume(at).admission()).isEqualTo(Admission.NO_LINK);
    assertThat(rank.failure()).isNotDone();
  }

  @Test
  void shouldReportThePeersDeathIfItsPortRefusesConnections() throws IOException {
    joinAsRank1();
    peer.close();
    BootstrapContract.assertLost(await(rank.failure()), 1);
  }

  /** Another process may listen at the address of a killed one before all have noticed. */
  @ParameterizedTest
  @CsvSource({
    "WRONG_SECRET, has died",
    "OTHER_PROCESS, has died",
    "DUPLICATE, could not be resumed",
    "NO_LINK, could not be resumed",
    "LEAVING, could not be resumed",
  })
  void shouldFailIfTheOtherSideRefusesToResume(Admission admission, String why) throws IOException {
    rank = TcpBootstrap.create(1, 2, options);
    try (ServerSocket job = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      CompletableFuture<Void> joined = rank.initialize("127.0.0.1:" + job.getLocalPort());
      peer.lead(job);
      await(joined);
    }
    peer.reset();
    peer.accept(admission);
    FluxCclException reason = await(rank.failure());
    assertThat(reason).hasMessageContaining(why);
    assertThat(reason.rank()).isZero();
  }
}
