// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.environment;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;
import static org.mockito.ArgumentMatchers.anyString;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import com.sun.management.UnixOperatingSystemMXBean;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.CancelledHandOut;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Connects and closes of NET that meet errors of the network, or each other. */
@Timeout(120)
class NetContextTest {
  private static final int ROUNDS = Rounds.of(60, 300);
  private static final int ATTEMPTS = Rounds.of(20, 50);
  private static final int THREADS = 3;

  private final FaultyNet net = new FaultyNet();
  private final NetRanks ranks = new NetRanks(net.plugin);

  @AfterEach
  void close() {
    ranks.close();
    assertThat(net.closed).isTrue();
  }

  /** Connects two ends, at least the first of which must fail with this reason. */
  private static void assertNotConnected(NetRanks ranks, String why) {
    Endpoint a = ranks.endpoint(0, 1, 9);
    Endpoint b = ranks.endpoint(1, 0, 9);
    Deadline deadline = Deadline.after(Duration.ofSeconds(60));
    CompletableFuture<Connection> toB = a.connect(b.wire(), deadline);
    CompletableFuture<Connection> toA = b.connect(a.wire(), deadline);
    assertFailure(TransportFailure.class, failureOf(toB), "was not connected", why);
    toA.exceptionally(error -> null).thenAccept(end -> b.close());
  }

  @Test
  void shouldServeOthersWhenRegisteringRunsOutOfMemory() throws Exception {
    Connection living = ranks.connect(0).get(0);
    net.error = new OutOfMemoryError("Cannot reserve 256 bytes of direct buffer memory");
    net.refusedSize = (long) net.plugin.maxRequests() * Long.BYTES;
    assertNotConnected(ranks, "Cannot reserve 256 bytes");
    get(living.flush(LIMIT));
    net.refusedSize = 0;
    get(ranks.connect(1).get(0).flush(LIMIT));
  }

  @Test
  void shouldReportTheCauseIfTheReceivingEndCannotRegister() {
    net.refusedReceivingSize = (long) net.plugin.maxRequests() * ControlMessage.MAX_BYTES;
    assertNotConnected(ranks, "the memory can't be registered");
  }

  @Test
  void shouldFailIfNotAllBytesOfAWriteArrive() throws Exception {
    int size = 100_000;
    List<Connection> ends = ranks.connect(0);
    net.shortenedSize = size;
    RegisteredMemory target = ranks.seenByPeer(ranks.memory(1, 2 * size));
    ends.get(0).write(target, 0, ranks.memory(0, size), 0, size);
    assertFailure(
        TransportFailure.class, get(ends.get(1).failed()), "100000 bytes, but 99999 bytes arrived");
  }

  @Test
  void shouldFreePinnedMemoryIfAnEndCannotBeMade() throws Exception {
    WatchedDevice device = new WatchedDevice(HostDevice.create());
    try (NetRanks staged = NetRanks.stagedOverTwoRails(net.plugin, device, HostDevice.create())) {
      staged.connect(0).forEach(Connection::close);
      int pinnedPerEnd = 4;
      Set<Long> sizes = net.registeredSizes();
      for (int pinned = 0; pinned < pinnedPerEnd; pinned++) {
        await().until(() -> device.openPinned() == 0);
        device.pinAtMost(pinned);
        assertNotConnected(staged, "of a test");
      }
      device.pinAtMost(pinnedPerEnd);
      for (long size : sizes) {
        await().until(() -> device.openPinned() == 0);
        net.refusedSize = size;
        net.refusedReceivingSize = size;
        // The first end may notice that the second has failed, before it fails itself.
        assertNotConnected(staged, "was not connected");
      }
      await().until(() -> device.openPinned() == 0);
    }
  }

  @Test
  void shouldCloseAConnectionThatIsCancelledWhileItIsHandedOut() throws Exception {
    CancelledHandOut.assertClosed(ranks, () -> ranks.context(0).openConnections() == 0);
    await().until(() -> net.openEnds() == 0);
  }

  @Test
  void shouldCloseAConnectionThatIsAcceptedAtTheDeadline() throws Exception {
    Endpoint a = ranks.endpoint(0, 1, 0);
    Deadline deadline = Deadline.after(Duration.ofSeconds(8));
    CountDownLatch handedOut = new CountDownLatch(1);
    net.beforeAccepted =
        () -> {
          while (!deadline.expired()) {
            Thread.onSpinWait();
          }
          handedOut.countDown();
        };
    CompletableFuture<Connection> connected = a.connect(ranks.endpoint(1, 0, 0).wire(), deadline);
    // A client connects, but sends no hello.
    byte[] address = EndpointWire.decode(a.wire(), 0).address();
    int handles = 8 + 2 + 32;
    NetHandle listener =
        new NetHandle(Arrays.copyOfRange(address, handles, handles + NetPlugin.HANDLE_BYTES));
    NetSendComm silent = MessageLink.await(() -> net.plugin.connect(0, listener));
    handedOut.await();
    assertThat(failureOf(connected)).isInstanceOf(io.fluxccl.Timeout.class);
    silent.close();
    await().until(() -> net.openEnds() == 0);
    ranks.awaitOpen(0, 0);
  }

  @Test
  void shouldCloseThePluginWhenAStreamCannotBeClosed() {
    Device device = mock(Device.class);
    DeviceStream[] streams = {mock(DeviceStream.class), mock(DeviceStream.class)};
    when(device.kind()).thenReturn(DeviceKind.CUDA);
    when(device.createPreferredStream(anyString())).thenReturn(streams[0], streams[1]);
    doThrow(new IllegalStateException("of a test")).when(streams[0]).close();
    FaultyNet other = new FaultyNet();
    NetRanks.open(environment(0, device), other.plugin, 1, other::close).close();
    await().until(() -> other.closed);
    verify(streams[1]).close();
  }

  @Test
  void shouldCloseTheFirstStreamIfTheSecondCannotBeMade() {
    Device device = mock(Device.class);
    DeviceStream first = mock(DeviceStream.class);
    when(device.kind()).thenReturn(DeviceKind.CUDA);
    when(device.createPreferredStream(anyString()))
        .thenReturn(first)
        .thenThrow(new IllegalStateException("of a test"));
    assertThatThrownBy(() -> NetRanks.open(environment(0, device), net.plugin, 1, () -> {}))
        .hasMessage("of a test");
    verify(first).close();
  }

  private static void createUntilClosed(NetContext context, CountDownLatch begun) {
    while (true) {
      try {
        context.createEndpoint(1, 0, EndpointConfig.of(Transport.NET));
        begun.countDown();
      } catch (InvalidUsage e) {
        return; // it is closed
      }
    }
  }

  @Test
  void shouldEndTheThreadWhenEndpointsAreMadeMeanwhile() throws Exception {
    try (Device device = HostDevice.create()) {
      for (int round = 0; round < ROUNDS; round++) {
        NetContext context = NetRanks.open(environment(0, device), net.plugin, 1, () -> {});
        CountDownLatch begun = new CountDownLatch(THREADS);
        List<CompletableFuture<Void>> creators = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
          creators.add(CompletableFuture.runAsync(() -> createUntilClosed(context, begun)));
        }
        begun.await();
        context.close();
        for (CompletableFuture<Void> creator : creators) {
          get(creator);
        }
        await().pollInterval(Duration.ofMillis(1)).until(() -> context.agent().isTerminated());
      }
    }
  }

  @Test
  void shouldCloseSocketsOfAttemptsThatThePeerNeverAccepts() {
    UnixOperatingSystemMXBean process =
        ManagementFactory.getPlatformMXBean(UnixOperatingSystemMXBean.class);
    Endpoint deaf = ranks.endpoint(1, 0, 7);
    long before = process.getOpenFileDescriptorCount();
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      Endpoint end = ranks.endpoint(0, 1, 7);
      Deadline deadline = Deadline.after(Duration.ofMillis(20));
      FluxCclException failure = failureOf(end.connect(deaf.wire(), deadline));
      assertFailure(io.fluxccl.Timeout.class, failure, "rank 1", "tag 7");
    }
    ranks.awaitOpen(0, 0);
    assertThat(process.getOpenFileDescriptorCount()).isLessThan(before + ATTEMPTS);
  }
}
