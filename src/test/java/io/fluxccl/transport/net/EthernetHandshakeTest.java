// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.tcp.PortRange;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.opentest4j.TestAbortedException;

@Timeout(60)
class EthernetHandshakeTest {
  @AutoClose private NetRanks ranks;
  private Endpoint a;
  private Endpoint b;

  @BeforeEach
  void open() {
    ranks = NetRanks.ethernet(false);
    a = ranks.endpoint(0, 1, 7);
    b = ranks.endpoint(1, 0, 7);
  }

  private static Deadline soon() {
    return Deadline.after(Duration.ofMillis(200));
  }

  @Test
  void shouldTimeOutNamingPeerWhenItDoesNotConnectBack() {
    assertFailure(
        io.fluxccl.Timeout.class, failureOf(a.connect(b.wire(), soon())), "rank 1", "tag 7");
    assertThat(failureOf(b.connect(a.wire(), deadline()))).isInstanceOf(TransportFailure.class);
    ranks.awaitOpen(0, 0);
    ranks.awaitOpen(1, 0);
  }

  @Test
  void shouldFailItsConnectionsIfItCannotPollSockets() throws Exception {
    CompletableFuture<Connection> connecting = a.connect(b.wire(), deadline());
    Connection toA = get(b.connect(a.wire(), deadline()));
    Connection toB = get(connecting);
    NetAgent agent = ranks.context(0).agent();
    agent.execute(agent.waiter()::close);
    assertFailure(
        TransportFailure.class, get(toB.failed()), "of rank 0 to rank 1", "can't be polled");
    assertFailureOf(0, TransportFailure.class, failureOf(toA.flush(LIMIT)), "closed its end");
  }

  @Test
  void shouldTimeOutIfTheListenerNeverAnswers() throws Exception {
    try (ServerSocket mute = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      assertFailure(
          io.fluxccl.Timeout.class,
          failureOf(a.connect(wireAt(mute.getLocalPort()), soon())),
          "it has not answered at " + mute.getInetAddress().getHostAddress(),
          ":" + mute.getLocalPort(),
          "does a firewall let its port through",
          "FLUXCCL_PORT_RANGE");
    }
  }

  @Test
  void shouldFailAndNameThePeerIfItsPortIsClosed() throws Exception {
    int closed;
    try (ServerSocket socket = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      closed = socket.getLocalPort();
    }
    assertNotAlive(a.connect(wireAt(closed), deadline()));
  }

  @Test
  void shouldFailWhenPeersEndIsGone() {
    b.close();
    ranks.awaitOpen(1, 0);
    assertNotAlive(a.connect(b.wire(), deadline()));
  }

  private static void assertNotAlive(CompletableFuture<Connection> connected) {
    assertFailure(TransportFailure.class, failureOf(connected), "is its process alive");
  }

  @Test
  void shouldRefuseMalformedWiresAndSecondConnects() {
    assertThat(failureOf(a.connect(new byte[] {1, 2, 3}, deadline())))
        .isInstanceOf(TransportFailure.class);
    assertThat(failureOf(a.connect(a.wire(), deadline()))).isInstanceOf(InvalidUsage.class);
    assertThrows(
        TransportFailure.class,
        () -> ranks.context(0).open(new byte[24], new MemoryOrigin(1, 1, 1, 1, 8)));
  }

  @Test
  void shouldAbandonAConnectThatIsCancelledOrClosed() {
    ranks.endpoint(0, 1, 1).connect(ranks.endpoint(1, 0, 1).wire(), deadline()).cancel(true);
    CompletableFuture<Connection> abandoned = a.connect(b.wire(), deadline());
    a.close();
    assertThat(failureOf(abandoned)).isInstanceOf(Aborted.class);
    ranks.awaitOpen(0, 0);
  }

  private static NetContext open(InetAddress address, PortRange ports) {
    return EthernetTransport.open(
        new TransportEnvironment(0, 2, 1, 0, HostDevice.create(), address),
        ports,
        null,
        Optional.empty(),
        UnaryOperator.identity());
  }

  @Test
  void shouldListenInThePortRangeOnly() throws Exception {
    InetAddress loopback = InetAddress.getLoopbackAddress();
    try (ServerSocket taken = new ServerSocket(0, 5, loopback)) {
      int port = taken.getLocalPort();
      assertThrows(
          TransportFailure.class,
          () -> open(loopback, new PortRange(port, port)),
          "FLUXCCL_PORT_RANGE");
    }
    assertThat(PortRange.parse(" 10-20 ")).isEqualTo(new PortRange(10, 20));
    for (String wrong : new String[] {"x", "1", "5-4", "0-5", "1-70000", "1-2-3"}) {
      assertRefused(() -> PortRange.parse(wrong));
    }
  }

  @Test
  void shouldConnectOverIpv6() throws Exception {
    NetContext context;
    try {
      context = open(InetAddress.getByName("::1"), PortRange.ANY);
    } catch (TransportFailure e) {
      throw new TestAbortedException("this host has no IPv6", e);
    }
    try (context) {
      Endpoint end = context.createEndpoint(0, 0, EndpointConfig.of(Transport.ETHERNET));
      get(get(end.connect(end.wire(), deadline())).flush(LIMIT));
    }
  }

  /** The wire of rank 1's end, as if it listened at that port. */
  private byte[] wireAt(int port) {
    EndpointWire wire = EndpointWire.decode(b.wire(), 1);
    ByteBuffer.wrap(wire.address()).order(ByteOrder.LITTLE_ENDIAN).putInt(8, port);
    return wire.encode();
  }
}
