// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static io.fluxccl.bootstrap.TcpRanks.failureOfJoining;
import static io.fluxccl.bootstrap.TcpRanks.knock;
import static io.fluxccl.bootstrap.TcpRanks.loopback;
import static io.fluxccl.testing.FailureAssertions.failureOf;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.TcpRanks.ForeignService;
import io.fluxccl.bootstrap.TcpRanks.ForeignService.Answer;
import io.fluxccl.testing.Ports;
import io.fluxccl.tls.Certificates;
import io.fluxccl.tls.Tls;
import io.fluxccl.tls.TlsStream;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.ssl.SslHandler;
import java.io.IOException;
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

/** The bootstrap over TLS. */
class BootstrapTlsTest {
  private static final Duration LIMIT = Duration.ofSeconds(8);

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
  void shouldSendOnlyAnAlertToAClientWithoutTls() throws IOException {
    InetSocketAddress root = loopback(Ports.reserved());
    List<TcpBootstrap> ranks = TcpRanks.create(2, OPTIONS);
    CompletableFuture<Void> first = ranks.get(0).initialize("127.0.0.1:" + root.getPort());
    try (Socket stranger = knock(root)) {
      byte[] request = "GET / HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
      stranger.getOutputStream().write(request);
      // A rank without TLS recognizes the reason by this alert.
      assertThat(stranger.getInputStream().readAllBytes()).startsWith(0x15, 3, 3, 0, 2, 2, 70);
    }
    CompletableFuture<Void> second = ranks.get(1).initialize("127.0.0.1:" + root.getPort());
    await(List.of(first, second));
    assertThat(await(onAll(ranks, each -> each.allGather(new byte[] {7}, soon())))).hasSize(2);
    await(onAll(ranks, TcpBootstrap::closeAsync));
  }

  @Test
  void shouldNotWaitForTheLimitIfTheRootUsesNoTls() throws Exception {
    byte[] nonce = new byte[BootstrapFrameCodec.NONCE_BYTES];
    Answer greeting =
        rank -> {
          rank.getOutputStream().write(TcpRanks.encode(new BootstrapFrame.Greeting(nonce)));
          rank.getInputStream().readAllBytes();
        };
    try (ForeignService root = new ForeignService(greeting)) {
      assertThat(failureOfJoining(root.address(), LIMIT))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("it does not use TLS and this rank does");
    }
  }

  /** The root accepts only certificates of an authority; this rank has no such certificate. */
  @Test
  void shouldNotWaitForTheLimitIfTheRootRefusesItsCertificate(@TempDir Path folder)
      throws Exception {
    Tls other = new Certificates(folder).of("root", "EC");
    SharedEventLoop thread = SharedEventLoop.acquire();
    Channel root =
        new ServerBootstrap()
            .group(thread.loop())
            .channel(NioServerSocketChannel.class)
            .childHandler(
                new ChannelInitializer<Channel>() {
                  @Override
                  protected void initChannel(Channel channel) {
                    channel.pipeline().addLast(new SslHandler(other.accepting()));
                  }
                })
            .bind(loopback(0))
            .sync()
            .channel();
    try {
      int port = ((InetSocketAddress) root.localAddress()).getPort();
      assertThat(failureOfJoining("127.0.0.1:" + port, LIMIT))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("FLUXCCL_TLS_AUTHORITIES");
    } finally {
      root.close().sync();
      thread.leave();
    }
  }

  @Test
  void shouldRefuseAManInTheMiddle(@TempDir Path folder) throws Exception {
    InetSocketAddress root = loopback(Ports.reserved());
    List<TcpBootstrap> ranks = TcpRanks.create(2, OPTIONS);
    CompletableFuture<Void> first = ranks.get(0).initialize("127.0.0.1:" + root.getPort());
    knock(root).close();
    Tls other = new Certificates(folder).of("between", "EC");
    try (ServerSocketChannel between = ServerSocketChannel.open()) {
      between.bind(loopback(0));
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

  /** Relays all bytes of the two sides, and poses as the peer of each. */
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
        continue; // the rank reconnects until it times out
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
