// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.MessageLink.LONG;
import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.netplugin.MessageLink.failureOf;
import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.TableOptions;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that the TCP network must pass with each kind of connection. */
@org.junit.jupiter.api.Timeout(240)
abstract class TcpNetworkContract extends TcpFixture {
  /** The beginning of a peer's address in messages. */
  private static final String ADDRESS = "127.0.0.1:";

  private static final Duration LITTLE = Duration.ofMillis(50);

  private final TcpOptions options;

  TcpNetworkContract(TcpOptions options) {
    this.options = options;
  }

  @Test
  void shouldMoveMessagesOfAllSizesInTheirOrder() {
    MessageLink link = link(options, Arrays.stream(SIZES).sum());
    link.moveAll(SIZES, 4);
  }

  @Test
  void shouldReportTheSentSizeIfTheReceiveIsLarger() {
    MessageLink link = link(options, 200_000);
    NetRequest receive = link.irecv(0, 200_000);
    await(link.isend(0, 100_000), receive);
    assertThat(receive.size(0)).isEqualTo(100_000);
  }

  @Test
  void shouldEndWaitingRequestsAfterTheirTimeNamingThePeer() {
    TcpNetPlugin hasty = network(options.withTimeouts(LITTLE, LONG));
    MessageLink link = link(network(options), hasty, 64);
    assertFailure(
        Timeout.class,
        failureOf(link.irecv(0, 64)),
        "receive from " + ADDRESS,
        ":" + ProcessHandle.current().pid(),
        "FLUXCCL_NET_TIMEOUT");
  }

  @Test
  void shouldShowItsConnections(@TempDir Path folder) throws Exception {
    Path table = folder.resolve("table");
    TcpNetPlugin from = network(options);
    TcpNetPlugin to = network(options.withTable(new TableOptions(table, true)));
    MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
    ObjectName pattern = new ObjectName("io.fluxccl:type=Connections,network=" + to.name() + ",*");
    MessageLink link = link(from, to, 64);
    link.move(64);
    NetRequest waiting = link.irecv(0, 64);
    assertThat(waiting.test()).isFalse();
    assertThat(to.connections()).hasSize(1);
    ConnectionState receiving = to.connections().get(0);
    assertThat(receiving.getOperation()).isEqualTo("receive from");
    assertThat(receiving.getBytes()).isEqualTo(64);
    assertThat(receiving.getMessages()).isEqualTo(1);
    assertThat(receiving.getInFlight()).isEqualTo(1);
    assertThat(receiving.getFailure()).isEmpty();
    assertThat(receiving.getDevice()).isEqualTo(to.properties(0).name());
    assertThat(receiving.getPeer()).contains(ADDRESS, ":" + ProcessHandle.current().pid());
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
    assertThat(from.connections().get(0).getOperation()).isEqualTo("send to");
    from.close();
    assertThat(failureOf(waiting)).isInstanceOf(RemoteFailure.class);
    assertThat(to.connections().get(0).getFailure()).contains(receiving.getPeer());
    assertThat(to.connections().get(0).getInFlight()).isZero();
    to.close();
    assertThat(beans.queryNames(pattern, null)).isEmpty();
  }

  @Test
  void shouldDeliverMessagesSentBeforeTheSenderCloses() {
    MessageLink link = link(options, 400_000);
    link.source.put(150_000, (byte) 9);
    assertDelivered(link);
    assertThat(link.target.get(150_000)).isEqualTo((byte) 9);
  }

  /** Sends two messages to three receives, and closes the sender. */
  static void assertDelivered(MessageLink link) {
    NetRequest first = link.irecv(0, 100_000);
    NetRequest second = link.irecv(100_000, 100_000);
    // Waits for a header, and so detects the disconnect.
    NetRequest none = link.irecv(200_000, 100_000);
    await(link.isend(0, 100_000), link.isend(100_000, 100_000));
    link.send.close();
    await(first, second);
    assertFailure(RemoteFailure.class, failureOf(none), "receive from " + ADDRESS);
  }

  @Test
  void shouldFailRequestsInFlightIfTheNetworkIsClosed() {
    TcpNetPlugin to = network(options);
    MessageLink link = link(network(options), to, 64);
    NetRequest receive = link.irecv(0, 64);
    to.close();
    assertFailure(TransportFailure.class, failureOf(receive), "closed");
    assertRefused(() -> to.listen(0));
  }

  @Test
  void shouldRefuseMemoryThatIsNotRegisteredHere() {
    MessageLink link = link(options, 64);
    long address = MessageLink.address(link.source);
    assertRefused(() -> link.isend(0, 65), "65 bytes");
    assertRefused(() -> link.send.isend(address, 1, 0, link.targetMemory));
    assertRefused(() -> link.isend(0, -1));
    assertRefused(() -> link.send.register(address, 64, PointerType.CUDA));
    link.sourceMemory.close();
    assertRefused(() -> link.isend(0, 1));
  }

  @Test
  void shouldTimeOutAConnectThatIsNotAccepted() {
    TcpNetPlugin from = network(options.withTimeouts(LITTLE, LITTLE));
    try (NetListenComm listener = network(options).listen(0)) {
      NetHandle handle = new NetHandle(listener.handle());
      assertThrows(
          Timeout.class, () -> await(() -> from.connect(0, handle)), "connect to " + ADDRESS);
    }
  }

  @Test
  void shouldTimeOutAnAcceptIfNoPeerConnects() {
    try (NetListenComm listener = network(options.withTimeouts(LITTLE, LITTLE)).listen(0)) {
      assertThrows(Timeout.class, () -> await(listener::accept), "accept on ");
    }
  }
}
