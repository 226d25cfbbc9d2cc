// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import static io.fluxccl.netplugin.MessageLink.LONG;
import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.netplugin.MessageLink.failureOf;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.agrona.BufferUtil;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that each of FluxCCL's own networks must pass. */
@org.junit.jupiter.api.Timeout(240)
public abstract class NetPluginContract {
  private final List<NetPlugin> open = new ArrayList<>();

  /**
   * Opens a network of one device, which can connect to the networks opened before. {@link
   * #closing} closes it.
   *
   * @param requests how long a request may take
   * @param connects how long a connect or accept may take
   */
  protected abstract NetPlugin network(Duration requests, Duration connects);

  /** Opens such a network with long timeouts, whose connections the table lists. */
  protected abstract NetPlugin network(TableOptions table);

  /** The connections of a network. */
  protected abstract List<ConnectionState> connections(NetPlugin network);

  private NetPlugin network() {
    return network(LONG, LONG);
  }

  /** The beginning of a peer's address in messages. */
  protected String address() {
    return "";
  }

  /** Sizes of messages that go different ways. */
  protected abstract int[] sizes();

  /** Asserts that a network holds nothing for what was given up. */
  protected void assertNothingLeft(NetPlugin network) {}

  /** Closes it after the test. */
  protected final <P extends NetPlugin> P closing(P network) {
    open.add(network);
    return network;
  }

  private MessageLink link(int bytes) {
    return new MessageLink(network(), network(), bytes);
  }

  @AfterEach
  void closeNetworks() {
    open.forEach(NetPlugin::close);
  }

  @Test
  void shouldMoveMessagesOfAllSizesInTheirOrder() {
    try (MessageLink link = link(Arrays.stream(sizes()).sum())) {
      link.moveAll(sizes(), 4);
    }
  }

  @Test
  void shouldReportTheSentSizeIfTheReceiveIsLarger() {
    try (MessageLink link = link(200_000)) {
      NetRequest receive = link.irecv(0, 200_000);
      await(link.isend(0, 100_000), receive);
      assertThat(receive.size(0)).isEqualTo(100_000);
    }
  }

  @Test
  void shouldEndWaitingRequestsAfterTheirTimeNamingThePeer() {
    NetPlugin patient = network();
    try (MessageLink link = new MessageLink(patient, network(Duration.ofMillis(50), LONG), 64)) {
      assertThat(failureOf(link.irecv(0, 64)))
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("receive from " + address())
          .hasMessageContaining(":" + ProcessHandle.current().pid())
          .hasMessageContaining("FLUXCCL_NET_TIMEOUT");
    }
  }

  @Test
  void shouldShowItsConnections(@TempDir Path folder) throws Exception {
    Path table = folder.resolve("table");
    NetPlugin from = network();
    NetPlugin to = network(new TableOptions(table, true));
    MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
    ObjectName pattern = new ObjectName("io.fluxccl:type=Connections,network=" + to.name() + ",*");
    try (MessageLink link = new MessageLink(from, to, 64)) {
      await(link.isend(0, 64), link.irecv(0, 64));
      NetRequest waiting = link.irecv(0, 64);
      assertThat(waiting.test()).isFalse();
      assertThat(connections(to)).hasSize(1);
      ConnectionState receiving = connections(to).get(0);
      assertThat(receiving.getOperation()).isEqualTo("receive from");
      assertThat(receiving.getBytes()).isEqualTo(64);
      assertThat(receiving.getMessages()).isEqualTo(1);
      assertThat(receiving.getInFlight()).isEqualTo(1);
      assertThat(receiving.getFailure()).isEmpty();
      assertThat(receiving.getDevice()).isEqualTo(to.properties(0).name());
      assertThat(receiving.getPeer())
          .contains(address())
          .contains(":" + ProcessHandle.current().pid());
      Path file = Path.of(table + "." + ProcessHandle.current().pid());
      Awaitility.await()
          .atMost(LONG)
          .untilAsserted(
              () ->
                  assertThat(Files.readString(file))
                      .contains("oldest ms", "receive from", receiving.getPeer()));
      ObjectName bean = beans.queryNames(pattern, null).iterator().next();
      assertThat((String) beans.getAttribute(bean, "Table")).contains("receive from");
      assertThat((Object[]) beans.getAttribute(bean, "Connections")).hasSize(1);
      assertThat(connections(from).get(0).getOperation()).isEqualTo("send to");
      from.close();
      assertThat(failureOf(waiting)).isInstanceOf(RemoteFailure.class);
      assertThat(connections(to).get(0).getFailure()).contains(receiving.getPeer());
      assertThat(connections(to).get(0).getInFlight()).isZero();
      to.close();
      assertThat(beans.queryNames(pattern, null)).isEmpty();
    }
  }

  @Test
  void shouldDeliverMessagesSentBeforeTheSenderCloses() {
    try (MessageLink link = link(400_000)) {
      NetRequest first = link.irecv(0, 100_000);
      NetRequest second = link.irecv(100_000, 100_000);
      NetRequest none = link.irecv(200_000, 100_000);
      link.source.put(150_000, (byte) 9);
      await(link.isend(0, 100_000), link.isend(100_000, 100_000));
      link.send.close();
      await(first, second);
      assertThat(link.target.get(150_000)).isEqualTo((byte) 9);
      assertThat(failureOf(none))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("receive from " + address());
    }
  }

  @Test
  void shouldFailRequestsInFlightIfTheNetworkIsClosed() {
    NetPlugin from = network();
    NetPlugin to = network();
    try (MessageLink link = new MessageLink(from, to, 64)) {
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
    try (MessageLink link = link(64)) {
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
  void shouldTimeOutAConnectThatIsNotAccepted() {
    Duration little = Duration.ofMillis(50);
    NetPlugin to = network();
    NetPlugin from = network(little, little);
    try (NetListenComm listener = to.listen(0)) {
      NetHandle handle = new NetHandle(listener.handle());
      assertThatThrownBy(
              () -> {
                while (from.connect(0, handle) == null) {
                  Thread.onSpinWait();
                }
              })
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("connect to " + address());
    }
    assertNothingLeft(from);
    assertNothingLeft(to);
  }

  @Test
  void shouldTimeOutAnAcceptIfNoPeerConnects() {
    Duration little = Duration.ofMillis(50);
    NetPlugin network = network(little, little);
    try (NetListenComm listener = network.listen(0)) {
      assertThatThrownBy(
              () -> {
                while (listener.accept() == null) {
                  Thread.onSpinWait();
                }
              })
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("accept on ");
    }
  }
}
