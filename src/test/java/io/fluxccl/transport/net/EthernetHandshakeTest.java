// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

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
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.opentest4j.TestAbortedException;

@Timeout(60)
class EthernetHandshakeTest {
  private NetRanks ranks;

  @BeforeEach
  void open() {
    ranks = NetRanks.ethernet(false);
  }

  @AfterEach
  void close() throws Exception {
    ranks.close();
  }

  @Test
  void shouldTimeOutNamingPeerWhenItDoesNotConnectBack() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 7);
    Endpoint b = ranks.endpoint(1, 0, 7);
    CompletableFuture<Connection> half =
        a.connect(b.wire(), Deadline.after(Duration.ofMillis(200)));
    assertThatThrownBy(() -> NetRanks.get(half))
        .hasCauseInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("rank 1")
        .hasMessageContaining("tag 7");
    CompletableFuture<Connection> late = b.connect(a.wire(), Deadline.after(NetRanks.LIMIT));
    assertThatThrownBy(() -> NetRanks.get(late)).hasCauseInstanceOf(TransportFailure.class);
    Awaitility.await()
        .until(
            () ->
                ranks.context(0).openConnections() == 0 && ranks.context(1).openConnections() == 0);
  }

  @Test
  void shouldTimeOutIfTheListenerNeverAnswers() throws Exception {
    try (ServerSocket mute = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      Endpoint a = ranks.endpoint(0, 1, 0);
      byte[] wire = wireAt(mute.getLocalPort());
      CompletableFuture<Connection> connected =
          a.connect(wire, Deadline.after(Duration.ofMillis(200)));
      assertThatThrownBy(() -> NetRanks.get(connected))
          .hasCauseInstanceOf(io.fluxccl.Timeout.class);
    }
  }

  @Test
  void shouldFailAndNameThePeerIfItsPortIsClosed() throws Exception {
    int nobody;
    try (ServerSocket socket = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      nobody = socket.getLocalPort();
    }
    Endpoint a = ranks.endpoint(0, 1, 0);
    CompletableFuture<Connection> connected =
        a.connect(wireAt(nobody), Deadline.after(NetRanks.LIMIT));
    assertThatThrownBy(() -> NetRanks.get(connected))
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining("is its process alive");
  }

  @Test
  void shouldFailWhenPeersEndIsGone() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 0);
    Endpoint b = ranks.endpoint(1, 0, 0);
    b.close();
    Awaitility.await().until(() -> ranks.context(1).openConnections() == 0);
    CompletableFuture<Connection> connected = a.connect(b.wire(), Deadline.after(NetRanks.LIMIT));
    assertThatThrownBy(() -> NetRanks.get(connected))
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining("is its process alive");
  }

  @Test
  void shouldRefuseMalformedWiresAndSecondConnects() {
    Endpoint a = ranks.endpoint(0, 1, 0);
    CompletableFuture<Connection> connected =
        a.connect(new byte[] {1, 2, 3}, Deadline.after(NetRanks.LIMIT));
    assertThatThrownBy(() -> NetRanks.get(connected)).hasCauseInstanceOf(TransportFailure.class);
    assertThatThrownBy(() -> NetRanks.get(a.connect(a.wire(), Deadline.after(NetRanks.LIMIT))))
        .hasCauseInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> ranks.context(0).open(new byte[24], new MemoryOrigin(1, 1, 1, 1, 8)))
        .isInstanceOf(TransportFailure.class);
  }

  @Test
  void shouldGiveUpWhenConnectIsCancelledOrEndIsClosed() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 0);
    Endpoint b = ranks.endpoint(1, 0, 0);
    a.connect(b.wire(), Deadline.after(NetRanks.LIMIT)).cancel(true);
    Endpoint c = ranks.endpoint(0, 1, 1);
    Endpoint d = ranks.endpoint(1, 0, 1);
    CompletableFuture<Connection> abandoned = c.connect(d.wire(), Deadline.after(NetRanks.LIMIT));
    c.close();
    assertThatThrownBy(() -> NetRanks.get(abandoned)).hasCauseInstanceOf(Aborted.class);
    Awaitility.await().until(() -> ranks.context(0).openConnections() == 0);
  }

  @Test
  void shouldCloseAConnectionThatIsCancelledWhileItIsHandedOut() throws Exception {
    CancelledHandOut.assertClosed(ranks, () -> ranks.context(0).openConnections() == 0);
  }

  @Test
  void shouldHonourThePortRange() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      int port = taken.getLocalPort();
      assertThatThrownBy(
              () ->
                  EthernetTransport.open(
                      NetRanks.environment(0, HostDevice.create()),
                      new PortRange(port, port),
                      null,
                      Optional.empty()))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("FLUXCCL_PORT_RANGE");
      if (port + 20 <= 65535) {
        NetContext context =
            EthernetTransport.open(
                NetRanks.environment(0, HostDevice.create()),
                new PortRange(port, port + 20),
                null,
                Optional.empty());
        for (int tag = 0; tag < 30; tag++) {
          Endpoint end = context.createEndpoint(1, tag, EndpointConfig.of(Transport.ETHERNET));
          assertThat(portOf(end, 0)).isBetween(port + 1, port + 20);
        }
        context.close();
      }
    }
    assertThat(PortRange.parse(" 10-20 ")).isEqualTo(new PortRange(10, 20));
    for (String wrong : new String[] {"x", "1", "5-4", "0-5", "1-70000", "1-2-3"}) {
      assertThatThrownBy(() -> PortRange.parse(wrong)).isInstanceOf(InvalidUsage.class);
    }
  }

  @Test
  void shouldConnectOverIpv6() throws Exception {
    InetAddress loopback = InetAddress.getByName("::1");
    TransportEnvironment environment =
        new TransportEnvironment(0, 1, 1, 0, HostDevice.create(), loopback);
    NetContext context;
    try {
      context = EthernetTransport.open(environment, PortRange.ANY, null, Optional.empty());
    } catch (TransportFailure e) {
      throw new TestAbortedException("this host has no IPv6", e);
    }
    try {
      Endpoint end = context.createEndpoint(0, 0, EndpointConfig.of(Transport.ETHERNET));
      NetRanks.get(
          NetRanks.get(end.connect(end.wire(), Deadline.after(NetRanks.LIMIT)))
              .flush(NetRanks.LIMIT));
    } finally {
      context.close();
    }
  }

  /** The wire of rank 1's end, as if it listened at that port. */
  private byte[] wireAt(int port) {
    EndpointWire wire = EndpointWire.decode(ranks.endpoint(1, 0, 0).wire(), 1);
    ByteBuffer.wrap(wire.handles()[0]).order(ByteOrder.LITTLE_ENDIAN).putInt(8, port);
    return wire.encode();
  }

  private static int portOf(Endpoint end, int rank) {
    return ByteBuffer.wrap(EndpointWire.decode(end.wire(), rank).handles()[0])
        .order(ByteOrder.LITTLE_ENDIAN)
        .getInt(8);
  }
}
