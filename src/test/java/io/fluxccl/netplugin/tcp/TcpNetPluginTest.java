package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.tcp.TcpLink.LONG;
import static io.fluxccl.netplugin.tcp.TcpLink.OPTIONS;
import static io.fluxccl.netplugin.tcp.TcpLink.await;
import static io.fluxccl.netplugin.tcp.TcpLink.failureOf;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import com.sun.management.ThreadMXBean;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import java.lang.management.ManagementFactory;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.agrona.BufferUtil;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@org.junit.jupiter.api.Timeout(120)
class TcpNetPluginTest {
  private static final int[] SIZES = {0, 1, 15, 4096, 16_384, 65_535, 65_536, 65_537, 1_000_003};

  private final List<TcpNetPlugin> open = new ArrayList<>();

  private TcpNetPlugin network(TcpOptions options) {
    TcpNetPlugin network = new TcpNetPlugin(options);
    open.add(network);
    return network;
  }

  private TcpLink link(TcpOptions options, int bytes) {
    return new TcpLink(network(options), network(options), bytes);
  }

  @AfterEach
  void closeNetworks() {
    open.forEach(TcpNetPlugin::close);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldMoveMessagesOfAllSizesInTheirOrder(int streams) {
    int total = 0;
    for (int size : SIZES) {
      total += size;
    }
    try (TcpLink link = link(OPTIONS.withStreams(streams, 2), total)) {
      for (int round = 0; round < 5; round++) {
        for (int i = 0; i < total; i++) {
          link.source.put(i, (byte) (i * 7 + (i >> 8) + round));
          link.target.put(i, (byte) 0);
        }
        NetRequest[] requests = new NetRequest[2 * SIZES.length];
        int offset = 0;
        for (int i = 0; i < SIZES.length; i++) {
          // Odd rounds send before there is a receive.
          requests[i] =
              round % 2 == 0 ? link.irecv(offset, SIZES[i]) : link.isend(offset, SIZES[i]);
          offset += SIZES[i];
        }
        offset = 0;
        for (int i = 0; i < SIZES.length; i++) {
          requests[SIZES.length + i] =
              round % 2 == 0 ? link.isend(offset, SIZES[i]) : link.irecv(offset, SIZES[i]);
          offset += SIZES[i];
        }
        await(requests);
        assertThat(link.target).isEqualTo(link.source);
        for (int i = 0; i < SIZES.length; i++) {
          assertThat(requests[i].size(0)).isEqualTo(SIZES[i]);
          assertThat(requests[SIZES.length + i].size(0)).isEqualTo(SIZES[i]);
        }
      }
    }
  }

  @Test
  void shouldAllowThirtyTwoRequestsAndRefuseOneMore() {
    try (TcpLink link = link(OPTIONS, 64)) {
      List<NetRequest> receives = new ArrayList<>();
      for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
        receives.add(link.irecv(i, 1));
      }
      assertThatThrownBy(() -> link.irecv(0, 1))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("32 requests are in flight");
      for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
        link.source.put(i, (byte) (i + 1));
        await(link.isend(i, 1));
      }
      await(receives.toArray(new NetRequest[0]));
      for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
        assertThat(link.target.get(i)).isEqualTo((byte) (i + 1));
      }
      await(link.irecv(0, 1), link.isend(5, 1));
      assertThat(link.target.get(0)).isEqualTo((byte) 6);
    }
  }

  @Test
  void shouldSayTheSizeThatWasSentWhereTheReceiveHadMoreRoom() {
    try (TcpLink link = link(OPTIONS.withStreams(3, 1), 200_000)) {
      NetRequest receive = link.irecv(0, 200_000);
      await(link.isend(0, 100_000), receive);
      assertThat(receive.size(0)).isEqualTo(100_000);
    }
  }

  @Test
  void shouldRefuseMoreThanTheReceiveHasRoomForAndTellTheSender() {
    try (TcpLink link = link(OPTIONS, 128)) {
      NetRequest receive = link.irecv(0, 64);
      link.isend(0, 128);
      assertThat(failureOf(receive))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("128 bytes")
          .hasMessageContaining("64 bytes");
      Awaitility.await()
          .atMost(LONG)
          .untilAsserted(
              () ->
                  assertThat(catchThrowable(() -> await(link.isend(0, 1))))
                      .isInstanceOf(RemoteFailure.class)
                      .hasMessageContaining("INVALID_USAGE")
                      .hasMessageContaining("128 bytes"));
      assertThatThrownBy(() -> link.irecv(0, 64)).isInstanceOf(InvalidUsage.class);
    }
  }

  @Test
  void shouldEndWaitingRequestsAfterTheirTimeNamingThePeer() {
    TcpOptions hasty = OPTIONS.withTimeouts(Duration.ofMillis(50), LONG);
    TcpNetPlugin patient = network(OPTIONS);
    try (TcpLink link = new TcpLink(patient, network(hasty), 64)) {
      assertThat(failureOf(link.irecv(0, 64)))
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("receive from 127.0.0.1:")
          .hasMessageContaining(":" + ProcessHandle.current().pid())
          .hasMessageContaining("FLUXCCL_NET_TIMEOUT");
    }
  }

  @Test
  void shouldWaitWithoutLimitWhereThereIsNone() {
    try (TcpLink link = link(OPTIONS.withTimeouts(Duration.ZERO, LONG), 64)) {
      NetRequest receive = link.irecv(0, 64);
      for (int i = 0; i < 1000; i++) {
        assertThat(receive.test()).isFalse();
      }
      await(link.isend(0, 3), receive);
      assertThat(receive.size(0)).isEqualTo(3);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 4})
  void shouldDeliverWhatWasSentBeforeTheSenderLeft(int streams) {
    try (TcpLink link = link(OPTIONS.withStreams(streams, 1), 400_000)) {
      NetRequest first = link.irecv(0, 100_000);
      NetRequest second = link.irecv(100_000, 100_000);
      NetRequest none = link.irecv(200_000, 100_000);
      link.source.put(150_000, (byte) 9);
      // Done for the sender: the kernel has it.
      await(link.isend(0, 100_000), link.isend(100_000, 100_000));
      link.send.close();
      await(first, second);
      assertThat(link.target.get(150_000)).isEqualTo((byte) 9);
      assertThat(failureOf(none))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("receive from 127.0.0.1:")
          .hasMessageContaining("on lo");
    }
  }

  @Test
  void shouldTellTheSenderThatTheReceiverLeft() {
    try (TcpLink link = link(OPTIONS, 64)) {
      link.receive.close();
      Awaitility.await()
          .atMost(LONG)
          .untilAsserted(
              () ->
                  assertThat(catchThrowable(() -> await(link.isend(0, 64))))
                      .isInstanceOf(RemoteFailure.class)
                      .hasMessageContaining("send to 127.0.0.1:"));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 4})
  void shouldLeaveMemoryAloneOnceAnEndIsClosed(int streams) {
    try (TcpLink link = link(OPTIONS.withStreams(streams, 2), 4 << 20)) {
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
      assertThatThrownBy(() -> link.irecv(0, 1))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("closed");
    }
  }

  @Test
  void shouldFailWhatIsInFlightWhenTheNetworkIsClosed() {
    TcpNetPlugin from = network(OPTIONS);
    TcpNetPlugin to = network(OPTIONS);
    try (TcpLink link = new TcpLink(from, to, 64)) {
      NetRequest receive = link.irecv(0, 64);
      to.close();
      assertThat(failureOf(receive))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("closed");
      assertThatThrownBy(() -> to.listen(0)).isInstanceOf(InvalidUsage.class);
    }
  }

  @Test
  void shouldRefuseMemoryThatIsNotRegisteredHere() {
    try (TcpLink link = link(OPTIONS, 64)) {
      long address = BufferUtil.address(link.source);
      assertThatThrownBy(() -> link.send.isend(address, 65, 0, link.sourceMemory))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("65 bytes");
      assertThatThrownBy(() -> link.send.isend(address, 1, 0, link.targetMemory))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> link.send.isend(address, -1, 0, link.sourceMemory))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> link.send.register(address, 64, PointerType.CUDA))
          .isInstanceOf(InvalidUsage.class);
      link.sourceMemory.close();
      assertThatThrownBy(() -> link.isend(0, 1)).isInstanceOf(InvalidUsage.class);
    }
  }

  @Test
  void shouldSayThatNobodyListensAnyMore() {
    TcpNetPlugin network = network(OPTIONS);
    NetListenComm listener = network.listen(0);
    NetHandle handle = new NetHandle(listener.handle());
    listener.close();
    assertThatThrownBy(
            () -> {
              while (network.connect(0, handle) == null) {
                Thread.onSpinWait();
              }
            })
        .isInstanceOf(RemoteFailure.class)
        .hasMessageContaining("connect to 127.0.0.1:");
    assertThatThrownBy(() -> network.connect(0, new NetHandle(new byte[] {1, 2, 3})))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("handle");
  }

  @Test
  void shouldGiveUpAConnectThatNobodyAccepts() {
    Duration little = Duration.ofMillis(50);
    TcpNetPlugin network = network(OPTIONS.withTimeouts(little, little));
    try (NetListenComm listener = network.listen(0)) {
      NetHandle handle = new NetHandle(listener.handle());
      assertThatThrownBy(
              () -> {
                while (network.connect(0, handle) == null) {
                  Thread.onSpinWait();
                }
              })
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("connect to 127.0.0.1:");
    }
  }

  @Test
  void shouldGiveUpAnAcceptToWhichNobodyConnects() {
    Duration little = Duration.ofMillis(50);
    TcpNetPlugin network = network(OPTIONS.withTimeouts(little, little));
    try (NetListenComm listener = network.listen(0)) {
      assertThatThrownBy(
              () -> {
                while (listener.accept() == null) {
                  Thread.onSpinWait();
                }
              })
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("accept on lo, 127.0.0.1:");
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void shouldAllocateNothingWhileMessagesMove(int streams) {
    try (TcpLink link = link(OPTIONS.withStreams(streams, 1), 100_000)) {
      ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
      NetRequest[] pair = new NetRequest[2];
      long least = Long.MAX_VALUE;
      // Both fit into the kernel's buffers. A round may meet a compiler that makes room; the best
      // of many shows what the code does.
      for (int round = 0; round < 10; round++) {
        long before = threads.getThreadAllocatedBytes(Thread.currentThread().getId());
        for (int i = 0; i < 200; i++) {
          pair[0] = link.irecv(0, 100_000);
          pair[1] = link.isend(0, i % 2 == 0 ? 100 : 100_000);
          while (!pair[1].test()) {
            Thread.yield();
          }
          while (!pair[0].test()) {
            Thread.yield();
          }
        }
        least =
            Math.min(
                least, threads.getThreadAllocatedBytes(Thread.currentThread().getId()) - before);
      }
      assertThat(least).isLessThan(500);
    }
  }

  @Test
  void shouldListenInThePortRangeOnly() throws Exception {
    int port = 0;
    NetListenComm listener = null;
    TcpNetPlugin network = null;
    // Another process may take a port that was free a moment ago.
    for (int tries = 0; listener == null && tries < 50; tries++) {
      try (ServerSocket probe = new ServerSocket(0)) {
        port = probe.getLocalPort();
      }
      network = network(OPTIONS.withPorts(port, port));
      try {
        listener = network.listen(0);
      } catch (TransportFailure e) {
        assertThat(e).hasMessageContaining("is free");
      }
    }
    try (NetListenComm listening = listener) {
      NetHandle handle = new NetHandle(listening.handle());
      assertThat(WireDescriptor.readHandle(handle.bytes()).address().getPort()).isEqualTo(port);
      TcpNetPlugin full = network;
      assertThatThrownBy(() -> full.listen(0))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("no port of " + port + "-" + port + " is free");
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
    assertThat(properties.maxRecvs()).isEqualTo(1);
    assertThatThrownBy(() -> network.properties(1)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> new TcpNetPlugin(OPTIONS.withInterfaces("=nothere7")))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("nothere7")
        .hasMessageContaining("lo");
  }

  @Test
  void shouldShowItsConnections(@TempDir Path folder) throws Exception {
    Path table = folder.resolve("table");
    TcpNetPlugin network = network(OPTIONS.withTable(table, true));
    try (TcpLink link = new TcpLink(network, network, 64)) {
      await(link.isend(0, 64), link.irecv(0, 64));
      NetRequest waiting = link.irecv(0, 64);
      assertThat(waiting.test()).isFalse();
      ConnectionState receiving =
          network.connections().stream()
              .filter(each -> each.getOperation().equals("receive from"))
              .findFirst()
              .orElseThrow();
      assertThat(receiving.getBytes()).isEqualTo(64);
      assertThat(receiving.getMessages()).isEqualTo(1);
      assertThat(receiving.getInFlight()).isEqualTo(1);
      assertThat(receiving.getPeer()).contains("127.0.0.1");
      Path file = Path.of(table + "." + ProcessHandle.current().pid());
      Awaitility.await()
          .atMost(LONG)
          .untilAsserted(
              () ->
                  assertThat(Files.readString(file))
                      .contains("oldest ms", "receive from", "send to", "127.0.0.1:"));
      MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
      ObjectName pattern = new ObjectName("io.fluxccl:type=TcpConnections,*");
      ObjectName bean = beans.queryNames(pattern, null).iterator().next();
      assertThat((String) beans.getAttribute(bean, "Table")).contains("receive from");
      assertThat((Object[]) beans.getAttribute(bean, "Connections")).hasSize(2);
      network.close();
      assertThat(beans.queryNames(pattern, null)).isEmpty();
    }
  }
}
