// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.WatchedBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Devices that are slow, refuse or die, and ends that close meanwhile. */
@Timeout(60)
abstract class EthernetStagedTroubleContract {
  private static final DeviceFailure BROKEN =
      new DeviceFailure(
          700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuMemcpyAsync on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS");

  /** Slots and their words, in each direction. */
  private static final int PINNED_PER_END = 4;

  private final Supplier<Device> opener;
  private final Set<DeviceBuffer> direct = ConcurrentHashMap.newKeySet();
  private WatchedDevice[] devices;
  private NetRanks ranks;

  EthernetStagedTroubleContract(Supplier<Device> opener) {
    this.opener = opener;
  }

  @BeforeEach
  void open() {
    devices = new WatchedDevice[] {watched(), watched()};
    ranks = NetRanks.ethernet(buffer -> !direct.contains(buffer), devices[0], devices[1]);
  }

  private WatchedDevice watched() {
    return new WatchedDevice(opener.get());
  }

  @AfterEach
  void close() throws Exception {
    for (WatchedDevice device : devices) {
      device.letGo();
    }
    ranks.close();
    for (WatchedDevice device : devices) {
      Awaitility.await().until(() -> device.openPinned() == 0);
      assertThat(device.openStreams()).isZero();
      assertThat(device.misuses()).isZero();
    }
  }

  private RegisteredMemory direct(int rank, long size) {
    DeviceBuffer buffer = ranks.allocateOnHost(rank, size);
    direct.add(buffer);
    return ranks.register(rank, buffer);
  }

  @Test
  void shouldServeOtherConnectionsWhileCopiesAreHeldUp() throws Exception {
    Connection slow = ranks.connect(0).get(0);
    Connection other = ranks.connect(1).get(0);
    RegisteredMemory source = ranks.memory(0, 100_000);
    RegisteredMemory hostSource = direct(0, 100_000);
    Contents.fill(hostSource, 1);
    RegisteredMemory target = ranks.memory(1, 100_000);
    RegisteredMemory hostTarget = direct(1, 100_000);
    devices[0].hold();
    devices[1].hold();

    slow.write(ranks.seenByPeer(target), 0, source, 0, 100_000);
    CompletableFuture<Void> flush = slow.flush(NetRanks.LIMIT);
    for (int i = 0; i < 100; i++) {
      other.write(ranks.seenByPeer(hostTarget), 0, hostSource, 0, 100_000);
      NetRanks.get(other.flush(NetRanks.LIMIT));
    }

    assertThat(flush).isNotDone();
    Contents.assertSame(hostTarget, 0, hostSource, 0, 100_000);
    devices[0].letGo();
    devices[1].letGo();
    NetRanks.get(flush);
  }

  @Test
  void shouldReadNoMoreWhileTheRingIsFull() throws Exception {
    int size = 32 << 20;
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, size);
    byte[] bytes = Contents.fill(source, 1);
    RegisteredMemory target = ranks.memory(1, size);
    devices[1].hold();

    link.write(ranks.seenByPeer(target), 0, source, 0, size);
    CompletableFuture<Void> flush = link.flush(NetRanks.LIMIT);
    // A copy and its mark for each slot.
    Awaitility.await().until(() -> devices[1].heldWork() >= 2 * StagingSlots.MAX_SLOTS);
    NetRanks.get(ranks.connect(1).get(0).flush(NetRanks.LIMIT));

    // Besides, each of the two streams is asked once whether the device works.
    assertThat(devices[1].heldWork()).isLessThanOrEqualTo(2 * StagingSlots.MAX_SLOTS + 2);
    assertThat(flush).isNotDone();
    devices[1].letGo();
    NetRanks.get(flush);
    assertThat(Arrays.equals(Contents.get(target, 0, size), bytes)).isTrue();
  }

  @Test
  void shouldTimeOutFlushesAndContinueIfCopiesTakeTooLong() throws Exception {
    for (int slow = 0; slow < 2; slow++) {
      Connection link = ranks.connect(slow).get(0);
      RegisteredMemory source = ranks.memory(0, 64);
      Contents.fill(source, slow);
      RegisteredMemory target = ranks.memory(1, 64);
      devices[slow].hold();
      link.write(ranks.seenByPeer(target), 0, source, 0, 64);
      CompletableFuture<Void> flush = link.flush(Duration.ofMillis(100));
      assertThatThrownBy(() -> NetRanks.get(flush))
          .hasCauseInstanceOf(io.fluxccl.Timeout.class)
          .hasMessageContaining("rank 1");
      assertThat(link.failure()).isNull();
      devices[slow].letGo();
      NetRanks.get(link.flush(NetRanks.LIMIT));
      Contents.assertSame(target, 0, source, 0, 64);
    }
  }

  @Test
  void shouldKeepPinnedMemoryUntilTheDeviceIsDoneWhenClosedInFlight() throws Exception {
    for (int slow = 0; slow < 2; slow++) {
      // The other end of the round before may still be open.
      Awaitility.await().until(() -> ranks.context(1).openConnections() == 0);
      int before = devices[slow].openPinned();
      List<Connection> ends = ranks.connect(slow);
      RegisteredMemory source = ranks.memory(0, 8 << 20);
      RegisteredMemory target = ranks.memory(1, 8 << 20);
      WatchedDevice device = devices[slow];
      device.hold();
      ends.get(0).write(ranks.seenByPeer(target), 0, source, 0, 8 << 20);
      CompletableFuture<Void> flush = ends.get(0).flush(NetRanks.LIMIT);
      Awaitility.await().until(() -> device.heldWork() > 0);

      ends.get(0).close();
      ends.get(1).close();
      source.close();
      target.close();

      assertThatThrownBy(() -> NetRanks.get(flush)).hasCauseInstanceOf(FluxCclException.class);
      assertThat(NetRanks.get(ends.get(0).failed())).isNotNull();
      assertThat(NetRanks.get(ends.get(1).failed())).isNotNull();
      int rank = slow;
      Awaitility.await().until(() -> ranks.context(rank).openConnections() == 0);
      assertThat(device.openPinned()).isEqualTo(before + PINNED_PER_END);
      device.letGo();
      Awaitility.await().until(() -> device.openPinned() == before);
    }
  }

  @Test
  void shouldKeepMemoryUntilCopiesAreDoneWhenItIsDeregistered() throws Exception {
    int size = 1 << 20;
    for (int slow = 0; slow < 2; slow++) {
      Connection link = ranks.connect(slow).get(0);
      WatchedBuffer[] buffers = {watched(0, size), watched(1, size)};
      RegisteredMemory source = ranks.register(0, buffers[0]);
      RegisteredMemory target = ranks.register(1, buffers[1]);
      devices[slow].hold();
      link.write(ranks.seenByPeer(target), 0, source, 0, size);
      CompletableFuture<Void> flush = link.flush(NetRanks.LIMIT);
      WatchedDevice device = devices[slow];
      // All pieces of the payload, each with its mark.
      Awaitility.await().until(() -> device.heldWork() >= 8);

      RegisteredMemory memory = slow == 0 ? source : target;
      memory.close();
      assertThat(buffers[slow].released()).isZero();
      device.letGo();

      NetRanks.get(flush);
      source.close();
      target.close();
      awaitReleased(buffers);
    }
  }

  private WatchedBuffer watched(int rank, long size) {
    return new WatchedBuffer(ranks.allocate(rank, size));
  }

  private static void awaitReleased(WatchedBuffer... buffers) {
    for (WatchedBuffer buffer : buffers) {
      Awaitility.await()
          .untilAsserted(
              () -> assertThat(buffer.released()).isEqualTo(buffer.retained()).isPositive());
    }
  }

  @Test
  void shouldKeepMemoryUntilCopiesAreDoneWhenItsContextIsClosed() throws Exception {
    int size = 1 << 20;
    WatchedBuffer[] buffers = {watched(0, size), watched(1, size)};
    RegisteredMemory source = ranks.register(0, buffers[0]);
    RegisteredMemory target = ranks.register(1, buffers[1]);
    Connection link = ranks.connect(0).get(0);
    devices[1].hold();
    link.write(ranks.seenByPeer(target), 0, source, 0, size);
    // All pieces of the payload: then the source is read.
    Awaitility.await().until(() -> devices[1].heldWork() >= 8);

    ranks.context(0).close();
    ranks.context(1).close();

    awaitReleased(buffers[0]);
    assertThat(buffers[1].released()).isZero();
    devices[1].letGo();
    awaitReleased(buffers[1]);
  }

  @Test
  void shouldReleaseMemoryOfADeviceThatHasDied() throws Exception {
    for (int bad = 0; bad < 2; bad++) {
      WatchedBuffer[] buffers = {watched(0, 64), watched(1, 64)};
      RegisteredMemory source = ranks.register(0, buffers[0]);
      RegisteredMemory target = ranks.register(1, buffers[1]);
      List<Connection> ends = ranks.connect(bad);
      devices[bad].die(BROKEN);
      ends.get(0).write(ranks.seenByPeer(target), 0, source, 0, 64);
      CompletableFuture<Void> flush = ends.get(0).flush(NetRanks.LIMIT);
      assertFailed(ends, bad);
      assertThatThrownBy(() -> NetRanks.get(flush)).hasCauseInstanceOf(TransportFailure.class);
      source.close();
      target.close();
      awaitReleased(buffers);
      devices[bad].die(null);
    }
  }

  @Test
  void shouldFailBothEndsWhenADeviceRefusesACopy() throws Exception {
    for (int bad = 0; bad < 2; bad++) {
      List<Connection> ends = ranks.connect(bad);
      RegisteredMemory source = ranks.memory(0, 64);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
      devices[bad].refuse(BROKEN);
      ends.get(0).write(remote, 0, source, 0, 64);
      assertFailed(ends, bad);
      devices[bad].refuse(null);
    }
  }

  @Test
  void shouldFailBothEndsWhenADeviceDiesWithCopiesInFlight() throws Exception {
    for (int bad = 0; bad < 2; bad++) {
      List<Connection> ends = ranks.connect(bad);
      RegisteredMemory source = ranks.memory(0, 64);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
      devices[bad].die(BROKEN);
      ends.get(0).write(remote, 0, source, 0, 64);
      CompletableFuture<Void> flush = ends.get(0).flush(NetRanks.LIMIT);
      assertFailed(ends, bad);
      assertThatThrownBy(() -> NetRanks.get(flush)).isInstanceOf(ExecutionException.class);
      devices[bad].die(null);
    }
  }

  @Test
  void shouldFailBothEndsWhenADeviceThrowsAnError() throws Exception {
    List<Connection> ends = ranks.connect(0);
    RegisteredMemory source = ranks.memory(0, 64);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    devices[0].failWith(new InternalError("of a test"));
    ends.get(0).write(remote, 0, source, 0, 64);
    CompletableFuture<Void> flush = ends.get(0).flush(NetRanks.LIMIT);
    assertThatThrownBy(() -> flush.get(20, TimeUnit.SECONDS))
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining("of a test");
    devices[0].failWith(null);
    assertThat(NetRanks.get(ends.get(1).failed())).isInstanceOf(TransportFailure.class);
    NetRanks.get(ranks.connect(1).get(0).flush(NetRanks.LIMIT));
  }

  @Test
  void shouldFailAllPendingFuturesIfPinnedMemoryCannotBeClosed() throws Exception {
    Connection link = ranks.connect(0).get(0);
    CompletableFuture<Connection> connecting =
        ranks
            .endpoint(0, 1, 1)
            .connect(ranks.endpoint(1, 0, 1).wire(), Deadline.after(Duration.ofMillis(500)));
    RegisteredMemory source = ranks.memory(0, 64);
    devices[1].hold();
    link.write(ranks.seenByPeer(ranks.memory(1, 64)), 0, source, 0, 64);
    CompletableFuture<Void> flush = link.flush(NetRanks.LIMIT);
    devices[0].closeBadly(true);
    assertThatThrownBy(() -> connecting.get(20, TimeUnit.SECONDS))
        .hasCauseInstanceOf(io.fluxccl.Timeout.class);
    link.close();
    assertThat(link.failed().get(20, TimeUnit.SECONDS)).isInstanceOf(Aborted.class);
    assertThatThrownBy(() -> flush.get(20, TimeUnit.SECONDS)).hasCauseInstanceOf(Aborted.class);
    Awaitility.await().until(() -> ranks.context(0).openConnections() == 0);
    devices[0].closeBadly(false);
    devices[1].letGo();
  }

  @Test
  void shouldReleaseAllRingsAndStreamsIfClosingEachFails() throws Exception {
    ranks.connect(0);
    assertThat(devices[0].openPinned()).isEqualTo(PINNED_PER_END);
    assertThat(devices[0].openStreams()).isEqualTo(2);
    devices[0].closeBadly(true);

    ranks.context(0).close();

    Awaitility.await().until(() -> ranks.context(0).agent().isTerminated());
    Awaitility.await().until(() -> devices[0].openPinned() == 0);
    assertThat(devices[0].openStreams()).isZero();
    devices[0].closeBadly(false);
  }

  private void assertFailed(List<Connection> ends, int bad) throws Exception {
    FluxCclException failure = NetRanks.get(ends.get(bad).failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("CUDA_ERROR_ILLEGAL_ADDRESS")
        .hasCause(BROKEN);
    assertThat(failure.rank()).isEqualTo(bad);
    FluxCclException other = NetRanks.get(ends.get(1 - bad).failed());
    assertThat(other).isInstanceOf(TransportFailure.class);
    assertThat(other.rank()).isEqualTo(bad);
  }

  @Test
  void shouldNamePeerThatDiesWhileCopiesAreHeldUp() throws Exception {
    for (int slow = 0; slow < 2; slow++) {
      List<Connection> ends = ranks.connect(slow);
      RegisteredMemory source = ranks.memory(0, 32 << 20);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 32 << 20));
      WatchedDevice device = devices[slow];
      device.hold();
      ends.get(0).write(remote, 0, source, 0, 32 << 20);
      CompletableFuture<Void> flush = ends.get(0).flush(NetRanks.LIMIT);
      Awaitility.await().until(() -> device.heldWork() > 0);
      ranks.sever(1);
      FluxCclException failure = NetRanks.get(ends.get(0).failed());
      assertThat(failure).isInstanceOf(TransportFailure.class);
      assertThat(failure.rank()).isEqualTo(1);
      assertThatThrownBy(() -> NetRanks.get(flush)).hasCause(failure);
      device.letGo();
      reopen();
    }
  }

  private void reopen() throws Exception {
    ranks.close();
    open();
  }

  @Test
  void shouldTakeNoPinnedMemoryOrStreamsIfSocketsReachTheMemory() throws Exception {
    WatchedDevice[] hosts = {
      new WatchedDevice(io.fluxccl.device.host.HostDevice.create()),
      new WatchedDevice(io.fluxccl.device.host.HostDevice.create())
    };
    try (NetRanks plain = NetRanks.ethernet(null, hosts[0], hosts[1])) {
      Connection link = plain.connect(0).get(0);
      RegisteredMemory source = plain.memory(0, 1 << 20);
      link.write(plain.seenByPeer(plain.memory(1, 1 << 20)), 0, source, 0, 1 << 20);
      NetRanks.get(link.flush(NetRanks.LIMIT));
      assertThat(hosts[0].openPinned() + hosts[1].openPinned()).isZero();
      assertThat(hosts[0].openStreams() + hosts[1].openStreams()).isZero();
    }
  }

  @Test
  void shouldRefuseSourceOfAnotherCommunicator() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    try (NetRanks others = NetRanks.ethernet(buffer -> true, watched(), watched())) {
      RegisteredMemory foreign = others.memory(0, 64);
      assertThatThrownBy(() -> link.write(remote, 0, foreign, 0, 64))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("was not registered with, or received by, this communicator");
    }
    assertThat(link.failure()).isNull();
  }
}
