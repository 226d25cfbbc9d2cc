package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.tcp.PortRange;
import io.fluxccl.transport.CancelledHandOut;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.agrona.concurrent.UnsafeBuffer;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.opentest4j.TestAbortedException;

/** Run by epoll and by NIO. */
@Timeout(60)
abstract class EthernetHandshakeContract {
  private final NetworkStack stack;
  private Ranks ranks;

  EthernetHandshakeContract(NetworkStack stack) {
    this.stack = stack;
  }

  @BeforeEach
  void open() {
    ranks = new Ranks(stack);
  }

  @AfterEach
  void close() throws Exception {
    ranks.close();
  }

  @Test
  void shouldHangUpOnGarbageAndGoOnServing() throws Exception {
    byte[] garbage = new byte[4096];
    new Random(1).nextBytes(garbage);
    assertHungUp(garbage);
    assertServes();
  }

  @Test
  void shouldHangUpOnHelloThatIsTooLong() throws Exception {
    Endpoint end = ranks.endpoint(1, 0, 0);
    byte[] hello = hello(0, 0, EndpointWire.decode(end.wire(), 1).token());
    assertHungUp(Arrays.copyOf(hello, hello.length + 1));
    assertServes();
  }

  @Test
  void shouldHangUpOnHelloThatStops() throws Exception {
    long start = System.nanoTime();
    assertHungUp(Arrays.copyOf(hello(0, 0, new byte[32]), 20));
    assertThat(Duration.ofNanos(System.nanoTime() - start))
        .isBetween(Duration.ofMillis(1500), Duration.ofSeconds(10));
    assertServes();
  }

  @Test
  void shouldHangUpOnWrongTokenRankOrTag() throws Exception {
    Endpoint end = ranks.endpoint(1, 0, 0);
    byte[] token = EndpointWire.decode(end.wire(), 1).token();
    byte[] wrong = token.clone();
    wrong[31] ^= 1;
    assertHungUp(hello(0, 0, wrong));
    assertHungUp(hello(1, 0, token));
    assertHungUp(hello(0, 1, token));
  }

  @Test
  void shouldAdmitATokenOnlyOnce() throws Exception {
    Endpoint end = ranks.endpoint(1, 0, 0);
    byte[] hello = hello(0, 0, EndpointWire.decode(end.wire(), 1).token());
    try (Socket first = dial()) {
      first.getOutputStream().write(hello);
      assertThat(first.getInputStream().readNBytes(HandshakeDescriptor.WELCOME_LENGTH))
          .startsWith('F', 'X', 'E', 'W');
      assertHungUp(hello);
    }
  }

  @Test
  void shouldAdmitAHelloThatComesByteByByte() throws Exception {
    Endpoint end = ranks.endpoint(1, 0, 0);
    byte[] hello = hello(0, 0, EndpointWire.decode(end.wire(), 1).token());
    try (Socket socket = dial()) {
      socket.setTcpNoDelay(true);
      for (byte b : hello) {
        socket.getOutputStream().write(b);
      }
      assertThat(socket.getInputStream().readNBytes(HandshakeDescriptor.WELCOME_LENGTH))
          .hasSize(HandshakeDescriptor.WELCOME_LENGTH);
    }
  }

  @Test
  void shouldTimeOutNamingPeerWhenItDoesNotConnectBack() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 7);
    Endpoint b = ranks.endpoint(1, 0, 7);
    CompletableFuture<Connection> half =
        a.connect(b.wire(), Deadline.after(Duration.ofMillis(200)));
    assertThatThrownBy(() -> Ranks.get(half))
        .hasCauseInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("rank 1")
        .hasMessageContaining("tag 7");
    CompletableFuture<Connection> late = b.connect(a.wire(), Deadline.after(Ranks.LIMIT));
    assertThatThrownBy(() -> Ranks.get(late)).hasCauseInstanceOf(TransportFailure.class);
    Awaitility.await()
        .until(() -> ranks.context(0).openSockets() == 1 && ranks.context(1).openSockets() == 1);
  }

  @Test
  void shouldTimeOutWhenWhoListensNeverAnswers() throws Exception {
    try (ServerSocket mute = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      Endpoint a = ranks.endpoint(0, 1, 0);
      byte[] wire =
          new EndpointWire((InetSocketAddress) mute.getLocalSocketAddress(), new byte[32]).encode();
      CompletableFuture<Connection> connected =
          a.connect(wire, Deadline.after(Duration.ofMillis(200)));
      assertThatThrownBy(() -> Ranks.get(connected)).hasCauseInstanceOf(io.fluxccl.Timeout.class);
    }
  }

  @Test
  void shouldFailNamingPeerWhenNobodyListens() throws Exception {
    InetSocketAddress nobody;
    try (ServerSocket socket = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      nobody = (InetSocketAddress) socket.getLocalSocketAddress();
    }
    Endpoint a = ranks.endpoint(0, 1, 0);
    CompletableFuture<Connection> connected =
        a.connect(new EndpointWire(nobody, new byte[32]).encode(), Deadline.after(Ranks.LIMIT));
    assertThatThrownBy(() -> Ranks.get(connected))
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 1 can't be reached");
  }

  @Test
  void shouldFailWhenPeersEndIsGone() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 0);
    Endpoint b = ranks.endpoint(1, 0, 0);
    b.close();
    Awaitility.await()
        .untilAsserted(
            () ->
                assertThat(ranks.context(1).claim(EndpointWire.decode(b.wire(), 1).token(), 0, 0))
                    .isNull());
    CompletableFuture<Connection> connected = a.connect(b.wire(), Deadline.after(Ranks.LIMIT));
    assertThatThrownBy(() -> Ranks.get(connected))
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining("hung up on the hello");
  }

  @Test
  void shouldRefuseMalformedWiresAndSecondConnects() {
    Endpoint a = ranks.endpoint(0, 1, 0);
    CompletableFuture<Connection> connected =
        a.connect(new byte[] {1, 2, 3}, Deadline.after(Ranks.LIMIT));
    assertThatThrownBy(() -> Ranks.get(connected)).hasCauseInstanceOf(TransportFailure.class);
    assertThatThrownBy(() -> Ranks.get(a.connect(a.wire(), Deadline.after(Ranks.LIMIT))))
        .hasCauseInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> ranks.context(0).open(new byte[24], new MemoryOrigin(1, 1, 1, 1, 8)))
        .isInstanceOf(TransportFailure.class);
  }

  @Test
  void shouldGiveUpWhenConnectIsCancelledOrEndIsClosed() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 0);
    Endpoint b = ranks.endpoint(1, 0, 0);
    a.connect(b.wire(), Deadline.after(Ranks.LIMIT)).cancel(true);
    Endpoint c = ranks.endpoint(0, 1, 1);
    Endpoint d = ranks.endpoint(1, 0, 1);
    CompletableFuture<Connection> abandoned = c.connect(d.wire(), Deadline.after(Ranks.LIMIT));
    c.close();
    assertThatThrownBy(() -> Ranks.get(abandoned)).hasCauseInstanceOf(Aborted.class);
    Awaitility.await()
        .until(() -> ranks.context(0).openSockets() == 1 && ranks.context(1).openSockets() == 1);
  }

  @Test
  void shouldCloseAConnectionThatIsCancelledWhileItIsHandedOut() throws Exception {
    CancelledHandOut.assertClosed(ranks, () -> ranks.context(0).openSockets() == 1);
  }

  @Test
  void shouldHonourThePortRange() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      int port = taken.getLocalPort();
      assertThatThrownBy(
              () ->
                  EthernetContext.open(
                      Ranks.environment(0, HostDevice.create()),
                      stack,
                      new PortRange(port, port),
                      StagingPolicy.WHERE_NEEDED))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("FLUXCCL_PORT_RANGE");
      if (port + 20 <= 65535) {
        EthernetContext context =
            EthernetContext.open(
                Ranks.environment(0, HostDevice.create()),
                stack,
                new PortRange(port, port + 20),
                StagingPolicy.WHERE_NEEDED);
        assertThat(context.listenAddress().getPort()).isBetween(port + 1, port + 20);
        context.close();
      }
    }
    assertThat(PortRange.parse("X", " 10-20 ")).isEqualTo(new PortRange(10, 20));
    assertThat(PortRange.parse("X", null)).isEqualTo(PortRange.ANY);
    for (String wrong : new String[] {"x", "1", "5-4", "0-5", "1-70000", "1-2-3"}) {
      assertThatThrownBy(() -> PortRange.parse("X", wrong)).isInstanceOf(InvalidUsage.class);
    }
  }

  @Test
  void shouldConnectOverIpv6() throws Exception {
    InetAddress loopback = InetAddress.getByName("::1");
    TransportEnvironment environment =
        new TransportEnvironment(0, 1, 1, 0, HostDevice.create(), loopback);
    EthernetContext context;
    try {
      context = EthernetContext.open(environment, stack, PortRange.ANY, StagingPolicy.WHERE_NEEDED);
    } catch (TransportFailure e) {
      throw new TestAbortedException("this host has no IPv6", e);
    }
    try {
      Endpoint end = context.createEndpoint(0, 0, EndpointConfig.of(Transport.ETHERNET));
      assertThat(end.wire()).hasSize(60);
      Ranks.get(Ranks.get(end.connect(end.wire(), Deadline.after(Ranks.LIMIT))).flush(Ranks.LIMIT));
    } finally {
      context.close();
    }
  }

  private void assertHungUp(byte[] sent) throws IOException {
    try (Socket socket = dial()) {
      socket.getOutputStream().write(sent);
      assertThat(socket.getInputStream().read()).isEqualTo(-1);
    } catch (SocketException reset) {
      assertThat(reset).hasMessageContaining("reset");
    }
  }

  private void assertServes() throws Exception {
    Ranks.get(ranks.connect(99).get(0).flush(Ranks.LIMIT));
  }

  private Socket dial() throws IOException {
    InetSocketAddress address = ranks.context(1).listenAddress();
    Socket socket = new Socket(address.getAddress(), address.getPort());
    socket.setSoTimeout((int) Ranks.LIMIT.toMillis());
    return socket;
  }

  private static byte[] hello(int rank, int tag, byte[] token) {
    byte[] hello = new byte[HandshakeDescriptor.HELLO_LENGTH];
    HandshakeDescriptor.putHello(new UnsafeBuffer(ByteBuffer.wrap(hello)), rank, tag, token);
    return hello;
  }
}
