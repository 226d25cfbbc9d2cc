// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.testing.Ports;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.agrona.CloseHelper;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** An attacker on the path between a rank and the root injects bytes into their connection. */
@org.junit.jupiter.api.Timeout(60)
class InjectionTest {
  private final BootstrapOptions options =
      BootstrapOptions.builder()
          .secret(JobSecret.random())
          .timeout(Duration.ofSeconds(20))
          .heartbeatInterval(Duration.ofMillis(100))
          .build();
  private final int rootPort = Ports.reserved();
  private final List<TcpBootstrap> ranks = TcpRanks.create(2, options);
  private ServerSocket path;
  private Socket toRank;
  private Socket toRoot;

  /** The latest bytes that the root has sent. */
  private volatile byte[] last = {};

  @BeforeEach
  void join() throws IOException {
    path = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
    var root = ranks.get(0).initialize("127.0.0.1:" + rootPort);
    var rank = ranks.get(1).initialize("127.0.0.1:" + path.getLocalPort());
    toRank = path.accept();
    toRoot = TcpRanks.knock(TcpRanks.loopback(rootPort));
    forward(toRank, toRoot);
    forward(toRoot, toRank);
    await(List.of(root, rank));
    await(onAll(ranks, each -> each.barrier(soon())));
  }

  private void forward(Socket from, Socket to) {
    Thread thread =
        new Thread(
            () -> {
              byte[] bytes = new byte[1 << 16];
              try {
                InputStream in = from.getInputStream();
                for (int n = in.read(bytes); n >= 0; n = in.read(bytes)) {
                  send(to, Arrays.copyOf(bytes, n));
                  if (from == toRoot) {
                    last = Arrays.copyOf(bytes, n);
                  }
                }
              } catch (IOException closed) {
                // A side has reset its connection, or the test has ended.
              } finally {
                end(to);
              }
            },
            "path");
    thread.setDaemon(true);
    thread.start();
  }

  /** Shuts the output down; closing a socket with unread bytes would reset it. */
  private static void end(Socket to) {
    try {
      to.shutdownOutput();
    } catch (IOException ended) {
      // The other side has closed this connection already.
    }
  }

  private static void send(Socket to, byte[] bytes) throws IOException {
    OutputStream out = to.getOutputStream();
    synchronized (to) {
      out.write(bytes);
    }
  }

  @AfterEach
  void closeAll() {
    await(onAll(ranks, TcpBootstrap::closeAsync));
    CloseHelper.closeAll(path, toRank, toRoot);
  }

  /** Asserts that the receiver of the bytes has found them out, and that both have failed. */
  private void assertFoundOut(boolean atRoot) {
    for (TcpBootstrap rank : ranks) {
      FluxCclException reason = await(rank.failure());
      assertThat(reason)
          .isInstanceOf(TransportFailure.class)
          .hasMessageContainingAll("is unusable", "wrong authentication code");
      assertThat(reason.rank()).isEqualTo(atRoot ? 1 : 0);
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldDisconnectIfAFrameIsInjected(boolean atRoot) throws IOException {
    Failure failure = new Failure(ErrorCode.ABORTED, 0, "the attacker says so");
    Failed forged = new Failed(ranks.get(0).roster().nonce(), failure);
    send(atRoot ? toRoot : toRank, TcpRanks.encode(forged));
    assertFoundOut(atRoot);
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldDisconnectIfAFrameIsReplayedOrReflected(boolean back) throws IOException {
    last = new byte[0];
    Awaitility.await().until(() -> last.length > 0); // a heartbeat
    send(back ? toRoot : toRank, last);
    assertFoundOut(back);
  }
}
