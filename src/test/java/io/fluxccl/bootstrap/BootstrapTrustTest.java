// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.ErrorCode;
import io.fluxccl.InvalidUsage;
import io.fluxccl.OpenFiles;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Rejected;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.testing.Ports;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A job of four ranks succeeds while unauthenticated clients connect to its ports. */
@org.junit.jupiter.api.Timeout(60)
class BootstrapTrustTest {
  private static final int N = 4;

  /** Join timeout. A wrong secret is reported after a quarter of it. */
  private static final Duration LIMIT = Duration.ofSeconds(8);

  private final BootstrapOptions options =
      BootstrapOptions.builder().secret(JobSecret.random()).timeout(Duration.ofSeconds(20)).build();
  private final List<Socket> sockets = new ArrayList<>();
  private InetSocketAddress root;
  private String address;
  private List<TcpBootstrap> ranks;
  private List<CompletableFuture<Void>> early;

  @BeforeEach
  void startAllButOne() {
    root = TcpRanks.loopback(Ports.reserved());
    address = "127.0.0.1:" + root.getPort();
    ranks = TcpRanks.create(N, options);
    early = onAll(ranks.subList(0, N - 1), each -> each.initialize(address));
  }

  @AfterEach
  void closeAll() throws IOException {
    for (Socket socket : sockets) {
      socket.close();
    }
    await(onAll(ranks, TcpBootstrap::closeAsync));
  }

  private void joinLastRankAndGather() {
    await(ranks.get(N - 1).initialize(address));
    await(early);
    await(onAll(ranks, each -> each.allGather(new byte[8], soon())));
    assertThat(ranks).noneMatch(each -> each.failure().isDone());
  }

  private Socket knock(InetSocketAddress door) throws IOException {
    Socket socket = TcpRanks.knock(door);
    sockets.add(socket);
    return socket;
  }

  private static void assertCloses(Socket socket) throws IOException {
    InputStream in = socket.getInputStream();
    try {
      while (in.read() >= 0) {
        // Skips the challenge.
      }
    } catch (SocketException e) {
      assertThat(e).hasMessageContaining("reset");
    }
  }

  private void say(InetSocketAddress door, byte[] bytes) throws IOException {
    Socket socket = knock(door);
    socket.getOutputStream().write(bytes);
    assertCloses(socket);
  }

  private void say(InetSocketAddress door, BootstrapFrame frame) throws IOException {
    say(door, TcpRanks.encode(frame));
  }

  private void attack(InetSocketAddress door) throws IOException {
    for (int i = 0; i < 50; i++) {
      knock(door).close();
    }
    say(door, "GET / HTTP/1.1\r\nHost: x\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
    for (int length : new int[] {Integer.MAX_VALUE, -1, 0}) {
      say(door, ByteBuffer.allocate(8).putInt(length).putInt(1).array());
    }
    // Before the handshake, frames that report a failure or a departure are ignored.
    Failure failure = new Failure(ErrorCode.REMOTE_FAILURE, 1, "so they say");
    say(door, new Failed(new Nonce(0, 0), failure));
    say(door, new Rejected(failure));
    say(door, new Goodbye());
    byte[] guess = new byte[32];
    for (LinkKind kind : LinkKind.values()) {
      say(door, new Proof(kind, root, 3, 0, guess, Resume.NONE, guess));
    }
    // A challenge of another protocol, with the length of a real one.
    byte[] greeting = TcpRanks.encode(new Greeting(guess));
    greeting[6] ^= 1;
    say(door, greeting);
  }

  @Test
  void shouldDisconnectUnauthenticatedClientsAtTheRoot() throws IOException {
    attack(root);
    joinLastRankAndGather();
    attack(root);
    await(onAll(ranks, each -> each.barrier(soon())));
  }

  @Test
  void shouldDisconnectUnauthenticatedClientsAtTheRanks() throws IOException {
    joinLastRankAndGather();
    attack(ranks.get(1).member(2).address());
    await(onAll(ranks, each -> each.barrier(soon())));
    assertThat(ranks).noneMatch(each -> each.failure().isDone());
  }

  /** The bound: if sockets run out, one without a hello is closed long before its timeout. */
  @Tag("timed")
  @Test
  void shouldDropTheOldestPendingSocketIfThereAreTooMany() throws IOException {
    Socket first = knock(root);
    for (int i = 0; i < OpenFiles.pendingSockets() + 20; i++) {
      knock(root);
    }
    joinLastRankAndGather();
    long start = System.nanoTime();
    assertCloses(first);
    assertThat(Duration.ofNanos(System.nanoTime() - start))
        .isLessThan(Duration.ofMillis(Handshake.LIMIT_MILLIS / 2));
  }

  @Test
  @Tag("long")
  void shouldDisconnectClientsThatStallInTheHandshake() throws IOException {
    List<Socket> dawdlers = new ArrayList<>();
    long start = System.nanoTime();
    for (int i = 0; i < 20; i++) {
      Socket dawdler = knock(root);
      dawdler.getOutputStream().write(0);
      dawdlers.add(dawdler);
    }
    joinLastRankAndGather();
    for (Socket dawdler : dawdlers) {
      assertCloses(dawdler);
    }
    assertThat(Duration.ofNanos(System.nanoTime() - start))
        .isGreaterThanOrEqualTo(Duration.ofMillis(4500));
  }

  @Test
  void shouldRefuseAWrongSecretAndNoSecret() {
    // Both are refused long before the timeout.
    BootstrapOptions.Builder other = BootstrapOptions.builder().timeout(LIMIT);
    try (TcpBootstrap wrong = TcpBootstrap.create(3, N, other.secret(JobSecret.random()).build());
        TcpBootstrap without = TcpBootstrap.create(3, N, other.secret(null).build())) {
      for (CompletableFuture<Void> stranger :
          List.of(wrong.initialize(address), without.initialize(address))) {
        String message = address + ": it refuses this rank's secret";
        assertFails(stranger, InvalidUsage.class, message);
      }
    }
    joinLastRankAndGather();
  }

  /** A refusal is not authenticated, so a forged one must not prevent a rank from joining. */
  @Test
  void shouldJoinAfterARefusalThatWasForged() throws Exception {
    byte[] zeros = new byte[BootstrapFrameCodec.MAC_BYTES];
    try (ServerSocket forger = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        TcpBootstrap other = TcpBootstrap.create(1, 2, options)) {
      String place = "127.0.0.1:" + forger.getLocalPort();
      CompletableFuture<Void> joined = other.initialize(place);
      try (Socket victim = forger.accept()) {
        victim.getOutputStream().write(TcpRanks.encode(new Greeting(new byte[32])));
        assertThat(victim.getInputStream().read()).isNotNegative();
        victim
            .getOutputStream()
            .write(
                TcpRanks.encode(new Verdict(Admission.WRONG_SECRET, Links.NOWHERE, 0, 0, zeros)));
        forger.close();
        assertCloses(victim);
      }
      try (TcpBootstrap host = TcpBootstrap.create(0, 2, options)) {
        await(host.initialize(place));
        await(joined);
      }
    }
    joinLastRankAndGather();
  }

  @ParameterizedTest
  @CsvSource({
    "4, 5, 'nRanks=5, but the job has nRanks=4'",
    "1, 4, ' has joined with this rank'",
  })
  void shouldRefuseARankThatDoesNotFitIntoTheJob(int rank, int nRanks, String why) {
    Awaitility.await()
        .ignoreExceptions()
        .until(() -> TcpRanks.missing(ranks.get(0)).equals(List.of(N - 1)));
    try (TcpBootstrap stranger = TcpBootstrap.create(rank, nRanks, options)) {
      assertFails(stranger.initialize(address), InvalidUsage.class, why);
    }
    joinLastRankAndGather();
  }

  @Test
  void shouldRefuseRanksOutOfRange() throws IOException {
    for (int rank : new int[] {-1, N, BootstrapFrameCodec.MAX_RANKS - 1}) {
      try (RawPeer stranger = new RawPeer(SessionKey.of(options.secret().get()))) {
        stranger.requestRank(rank, N, root);
        assertThat(stranger.read(Rejected.class).failure().toException())
            .isInstanceOf(InvalidUsage.class)
            .hasMessageContaining("the job has no such rank");
      }
    }
    joinLastRankAndGather();
  }

  @Test
  void shouldDisconnectAProcessThatJoinsInTheNameOfAnother() throws IOException {
    try (RawPeer liar = new RawPeer(SessionKey.of(options.secret().get()))) {
      Contact other = new Contact(TcpRanks.loopback(1), 1, 1, 1, 1, "another process");
      liar.requestRank(other, N - 1, N, root);
      assertThatThrownBy(() -> liar.read(Propose.class)).isInstanceOf(EOFException.class);
    }
    joinLastRankAndGather();
  }

  @Test
  void shouldNotAdmitALateRankToAGroupThatRuns() {
    joinLastRankAndGather();
    BootstrapOptions.Builder soon = BootstrapOptions.builder().secret(options.secret().get());
    try (TcpBootstrap late =
        TcpBootstrap.create(1, N, soon.timeout(Duration.ofSeconds(2)).build())) {
      assertFails(late.initialize(address), io.fluxccl.Timeout.class);
    }
    await(onAll(ranks, each -> each.barrier(soon())));
  }

  @Test
  void shouldAskForASecretWhereOthersCanConnect() {
    joinLastRankAndGather();
    InetAddress reachable = NetworkAddresses.reachable();
    assumeTrue(!reachable.isLoopbackAddress(), "only loopback here");
    String host = reachable.getHostAddress();
    String open = (host.contains(":") ? "[" + host + "]:" : host + ":") + Ports.reserved();
    for (int rank : new int[] {0, 1}) {
      try (TcpBootstrap trusting =
          TcpBootstrap.create(rank, 2, BootstrapOptions.builder().secret(null).build())) {
        assertFails(trusting.initialize(open), InvalidUsage.class, "FLUXCCL_SECRET");
      }
    }
    BootstrapOptions insecure = BootstrapOptions.builder().secret(null).insecure(true).build();
    List<TcpBootstrap> trusting = TcpRanks.byAddress(2, insecure, open);
    await(onAll(trusting, each -> each.barrier(soon())));
    await(onAll(trusting, TcpBootstrap::closeAsync));
  }
}
