// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.MessageLink.LONG;
import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.netplugin.MessageLink.failureOf;
import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.TableOptions;
import io.fluxccl.testing.HangLimit;
import io.fluxccl.testing.Ports;
import io.fluxccl.transport.tcp.TcpHandle;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.agrona.BufferUtil;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@org.junit.jupiter.api.Timeout(120)
@Tag("jdk")
class TcpNetPluginTest extends TcpNetworkContract {
  TcpNetPluginTest() {
    super(OPTIONS);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void shouldAllocateNothingWhileMessagesMove(int streams) {
    MessageLink link = link(OPTIONS.withStreams(streams, 1), 100_000);
    // Both sizes fit into the kernel's buffers.
    assertThat(link.leastAllocated(500)).isLessThan(500);
  }

  @Test
  void shouldAllowThirtyTwoRequestsAndRefuseOneMore() {
    MessageLink link = link(OPTIONS, 64);
    List<NetRequest> receives = new ArrayList<>();
    for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
      receives.add(link.irecv(i, 1));
    }
    assertRefused(() -> link.irecv(0, 1), "32 requests are in flight");
    for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
      link.source.put(i, (byte) (i + 1));
      await(link.isend(i, 1));
    }
    await(receives);
    for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
      assertThat(link.target.get(i)).isEqualTo((byte) (i + 1));
    }
    await(link.irecv(0, 1), link.isend(5, 1));
    assertThat(link.target.get(0)).isEqualTo((byte) 6);
  }

  @ParameterizedTest
  @ValueSource(longs = {65, 1L << 32, Long.MAX_VALUE})
  void shouldRefuseASendBeyondItsMemory(long size) {
    MessageLink link = link(OPTIONS, 64);
    long address = BufferUtil.address(link.source);
    assertRefused(() -> link.send.isend(address, size, 0, link.sourceMemory), "64 bytes at");
    assertRefused(() -> link.send.isend(address + 1, size - 1, 0, link.sourceMemory), "64 bytes");
  }

  @Test
  void shouldWithdrawItsTableIfItCannotListen() throws Exception {
    ObjectName tables = new ObjectName("io.fluxccl:type=Connections,*");
    MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
    InetAddress loopback = InetAddress.getLoopbackAddress();
    try (ServerSocket taken = new ServerSocket(0, 5, loopback)) {
      int port = taken.getLocalPort();
      TcpOptions published = OPTIONS.withTable(new TableOptions(null, true)).withPorts(port, port);
      Set<ObjectName> before = beans.queryNames(tables, null);
      assertThrows(
          TransportFailure.class,
          () -> TcpNetPlugin.at(loopback, published),
          "no port of " + port + "-" + port + " is free");
      assertThat(beans.queryNames(tables, null)).isSubsetOf(before);
    }
  }

  @Test
  void shouldRefuseAMessageLargerThanItsReceiveAndReportItToTheSender() {
    MessageLink link = link(OPTIONS, 128);
    NetRequest receive = link.irecv(0, 64);
    link.isend(0, 128);
    assertFailure(InvalidUsage.class, failureOf(receive), "128 bytes", "64 bytes");
    assertFailure(RemoteFailure.class, failureOfSends(link), "INVALID_USAGE", "128 bytes");
    assertRefused(() -> link.irecv(0, 64));
  }

  /** Sends until the sender notices that its peer has failed. */
  private static Throwable failureOfSends(MessageLink link) {
    return catchThrowable(
        () -> {
          long began = HangLimit.start();
          while (true) {
            await(link.isend(0, 1));
            HangLimit.check(began, "a send fails");
          }
        });
  }

  @Test
  void shouldWaitWithoutLimitWhereThereIsNone() {
    MessageLink link = link(OPTIONS.withTimeouts(Duration.ZERO, LONG), 64);
    NetRequest receive = link.irecv(0, 64);
    for (int i = 0; i < 1000; i++) {
      assertThat(receive.test()).isFalse();
    }
    await(link.isend(0, 3), receive);
    assertThat(receive.size(0)).isEqualTo(3);
  }

  @Test
  void shouldFailTheSenderIfTheReceiverCloses() {
    MessageLink link = link(OPTIONS, 64);
    link.receive.close();
    assertFailure(RemoteFailure.class, failureOfSends(link), "send to 127.0.0.1:");
  }

  @Test
  void shouldEndAReceiveAtOnceWhenTheSenderLeavesWithinItsMessage() {
    int bytes = 64 << 20;
    MessageLink link = link(OPTIONS, bytes);
    NetRequest torn = link.irecv(0, bytes);
    link.isend(0, bytes);
    for (int i = 0; i < 3; i++) {
      assertThat(torn.test()).isFalse();
    }
    link.send.close();
    assertFailure(RemoteFailure.class, failureOf(torn), "receive from 127.0.0.1:");
  }

  @Test
  void shouldSendNothingOfAMessageOnceItHasFailed() {
    int bytes = 16 << 20;
    TcpNetPlugin from = network(OPTIONS.withTimeouts(Duration.ofMillis(200), LONG));
    MessageLink link = link(from, network(OPTIONS), bytes);
    NetRequest first = link.isend(0, bytes);
    NetRequest second = link.isend(0, 64);
    assertThat(failureOf(first)).isInstanceOf(Timeout.class);
    // Its memory is the caller's again.
    for (int i = 0; i < bytes; i++) {
      link.source.put(i, (byte) 1);
    }
    NetRequest receive = link.irecv(0, bytes);
    Throwable torn =
        catchThrowable(
            () -> {
              long began = HangLimit.start();
              while (!receive.test()) {
                HangLimit.check(began, "the receive fails");
                assertThat(catchThrowable(second::test)).isNotNull();
              }
            });
    assertThat(torn).isInstanceOf(RemoteFailure.class);
    for (int i = 0; i < bytes; i++) {
      assertThat(link.target.get(i)).isZero();
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 4})
  void shouldLeaveMemoryAloneOnceAnEndIsClosed(int streams) {
    MessageLink link = link(OPTIONS.withStreams(streams, 2), 4 << 20);
    for (int i = 0; i < 4; i++) {
      link.irecv(i << 20, 1 << 20);
    }
    for (int i = 0; i < 4; i++) {
      link.isend(i << 20, 1 << 20);
    }
    link.receive.close();
    for (int i = 0; i < 4 << 20; i += 64) {
      link.target.put(i, (byte) 1);
    }
    link.send.close();
    for (int i = 0; i < 4 << 20; i += 64) {
      assertThat(link.target.get(i)).isEqualTo((byte) 1);
    }
    assertRefused(() -> link.irecv(0, 1), "closed");
  }

  @Test
  void shouldFailToConnectIfTheListenerIsClosed() {
    TcpNetPlugin network = network(OPTIONS);
    NetListenComm listener = network.listen(0);
    NetHandle handle = new NetHandle(listener.handle());
    listener.close();
    ThrowingCallable connect = () -> await(() -> network.connect(0, handle));
    assertThrows(RemoteFailure.class, connect, "connect to 127.0.0.1:");
    NetHandle wrong = new NetHandle(new byte[] {1, 2, 3});
    assertRefused(() -> network.connect(0, wrong), "handle");
  }

  @Test
  void shouldListenInThePortRangeOnly() throws Exception {
    int port = Ports.reserved();
    TcpNetPlugin network = network(OPTIONS.withPorts(port, port));
    try (NetListenComm one = network.listen(0);
        NetListenComm other = network.listen(0)) {
      for (NetListenComm listening : List.of(one, other)) {
        ByteBuffer handle = ByteBuffer.wrap(listening.handle());
        assertThat(TcpHandle.decode(handle).address().getPort())
            .as("all listeners of a network share a port")
            .isEqualTo(port);
      }
      TcpNetPlugin full = network(OPTIONS.withPorts(port, port));
      String range = port + "-" + port;
      assertThrows(
          TransportFailure.class, () -> full.listen(0), "no port of " + range + " is free");
    }
  }

  @Test
  void shouldDescribeItsDevices() {
    TcpNetPlugin network = network(OPTIONS);
    assertThat(network.devices()).isEqualTo(1);
    NetProperties properties = network.properties(0);
    assertThat(properties.name()).isEqualTo("lo");
    assertThat(properties.pciPath()).isNull();
    assertThat(properties.speedMbps()).isPositive();
    assertThat(properties.pointers()).isEqualTo(Set.of(PointerType.HOST));
    assertThat(properties.maxRecvs()).isEqualTo(8);
    assertRefused(() -> network.properties(1));
    TcpOptions none = OPTIONS.withInterfaces("=nothere7");
    assertThrows(TransportFailure.class, () -> new TcpNetPlugin(none), "nothere7", "lo");
  }
}
