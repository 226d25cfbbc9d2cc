// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.failureOf;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.tls.Certificates;
import io.fluxccl.tls.Tls;
import io.fluxccl.tls.TlsStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The bootstrap behind TLS. */
class BootstrapTlsTest {
  private static final BootstrapOptions OPTIONS =
      BootstrapOptions.builder()
          .messageLimit(BootstrapContract.LIMIT)
          .timeout(Duration.ofSeconds(20))
          .secret(JobSecret.random())
          .build();

  @BeforeAll
  static void switchOn() {
    System.setProperty(Tls.PROPERTY, "1");
  }

  @AfterAll
  static void switchOff() {
    System.clearProperty(Tls.PROPERTY);
  }

  @Tag("long")
  @Nested
  class Contract extends BootstrapContract {
    @Override
    List<? extends Bootstrap> makeGroup(int nRanks) {
      return TcpRanks.byAddress(nRanks, OPTIONS);
    }

    @Override
    CompletableFuture<Void> kill(Bootstrap bootstrap) {
      return TcpRanks.kill((TcpBootstrap) bootstrap);
    }
  }

  @Test
  void shouldSayNothingToOneWithoutTls() throws IOException {
    InetSocketAddress root =
        new InetSocketAddress(InetAddress.getLoopbackAddress(), TcpRanks.freePort());
    List<TcpBootstrap> ranks = TcpRanks.create(2, OPTIONS);
    CompletableFuture<Void> first = ranks.get(0).initialize("127.0.0.1:" + root.getPort());
    try (Socket stranger = knock(root)) {
      ByteArrayOutputStream request = new ByteArrayOutputStream();
      request.writeBytes("GET / HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
      stranger.getOutputStream().write(request.toByteArray());
      // An alert of TLS, or nothing.
      assertThat(stranger.getInputStream().readAllBytes()).hasSizeLessThan(10);
    }
    CompletableFuture<Void> second = ranks.get(1).initialize("127.0.0.1:" + root.getPort());
    await(List.of(first, second));
    assertThat(await(onAll(ranks, each -> each.allGather(new byte[] {7}, soon())))).hasSize(2);
    await(onAll(ranks, TcpBootstrap::closeAsync));
  }

  @Test
  void shouldNotBelieveARootThatIsSomebodyBetween(@TempDir Path folder) throws Exception {
    InetSocketAddress root =
        new InetSocketAddress(InetAddress.getLoopbackAddress(), TcpRanks.freePort());
    List<TcpBootstrap> ranks = TcpRanks.create(2, OPTIONS);
    CompletableFuture<Void> first = ranks.get(0).initialize("127.0.0.1:" + root.getPort());
    knock(root).close();
    Tls other = new Certificates(folder).of("between", "EC");
    try (ServerSocketChannel between = ServerSocketChannel.open()) {
      between.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
      Thread relay = new Thread(() -> relay(between, other, root));
      relay.start();
      int port = ((InetSocketAddress) between.getLocalAddress()).getPort();
      assertThat(failureOf(ranks.get(1).initialize("127.0.0.1:" + port)))
          .hasMessageContaining("secret");
      between.close();
      relay.join();
    }
    assertThat(first).isNotDone();
    await(onAll(ranks, TcpBootstrap::closeAsync));
  }

  private static Socket knock(InetSocketAddress door) throws IOException {
    while (true) {
      Socket socket = new Socket();
      try {
        socket.connect(door, 10_000);
        socket.setSoTimeout(20_000);
        return socket;
      } catch (IOException e) {
        socket.close(); // the root does not listen yet
      }
    }
  }

  /** Reads and passes on what two sides say, to each of them as the other. */
  private static void relay(ServerSocketChannel between, Tls own, InetSocketAddress root) {
    while (between.isOpen()) {
      try (SocketChannel rank = between.accept();
          SocketChannel toRoot = SocketChannel.open(root)) {
        rank.configureBlocking(false);
        toRoot.configureBlocking(false);
        // The authority of its certificate asks for one of the rank; the job's ranks have none.
        TlsStream one = new TlsStream(rank, Certificates.acceptingAnybody(own));
        TlsStream other = new TlsStream(toRoot, Tls.selfSigned().connecting());
        while (!one.handshake() || !other.handshake()) {
          Thread.onSpinWait();
        }
        ByteBuffer bytes = ByteBuffer.allocate(4096);
        boolean open = true;
        while (open) {
          open = pass(one, other, bytes) && pass(other, one, bytes);
        }
      } catch (IOException e) {
        continue; // it tries again, until its time is over
      }
    }
  }

  private static boolean pass(TlsStream from, TlsStream to, ByteBuffer bytes) throws IOException {
    int n = from.read(bytes.clear());
    for (long left = n; left > 0; ) {
      left -= to.write(new ByteBuffer[] {bytes.limit(n).position(n - (int) left)}, 1);
    }
    return n >= 0;
  }
}
