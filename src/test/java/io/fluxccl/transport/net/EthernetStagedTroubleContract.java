// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.WatchedBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Devices that are slow, refuse or die, and ends that close meanwhile. */
@Timeout(60)
abstract class EthernetStagedTroubleContract {
  static final DeviceFailure BROKEN =
      new DeviceFailure(
          700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuMemcpyAsync on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS");

  /** Slots and their words, in each direction. */
  private static final int PINNED_PER_END = 4;

  private final Supplier<Device> opener;
  private WatchedDevice[] devices;
  private NetRanks ranks;

  EthernetStagedTroubleContract(Supplier<Device> opener) {
    this.opener = opener;
  }

  @BeforeEach
  void open() {
    devices = new WatchedDevice[] {watched(), watched()};
    ranks = NetRanks.staged(devices[0], devices[1]);
  }

  private WatchedDevice watched() {
    return new WatchedDevice(opener.get());
  }

  @AfterEach
  void close() {
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

  @Test
  void shouldServeOtherConnectionsWhileCopiesAreHeldUp() throws Exception {
    int size = 100_000;
    Transfer slow = ranks.transfer(0, size);
    List<Connection> others = ranks.connect(1);
    RegisteredMemory target = ranks.direct(1, size);
    RegisteredMemory source = ranks.direct(0, size);
    Contents.fill(source, 1);
    Transfer other =
        new Transfer(others.get(0), others.get(1), source, target, ranks.seenByPeer(target));
    devices[0].hold();
    devices[1].hold();
    CompletableFuture<Void> flush = slow.write().flushing();
    for (int i = 0; i < 100; i++) {
      other.write().flush();
    }
    assertThat(flush).isNotDone();
    other.assertWritten();
    devices[0].letGo();
    devices[1].letGo();
    get(flush);
  }

  @Test
  void shouldReadNoMoreWhileTheRingIsFull() throws Exception {
    Transfer transfer = ranks.transfer(0, 32 << 20);
    devices[1].hold();
    CompletableFuture<Void> flush = transfer.write().flushing();
    // A copy and its mark for each slot.
    Awaitility.await().until(() -> devices[1].heldWork() >= 2 * StagingSlots.MAX_SLOTS);
    get(ranks.connect(1).get(0).flush(LIMIT));
    // Besides, each of the two streams is asked once whether the device works.
    assertThat(devices[1].heldWork()).isLessThanOrEqualTo(2 * StagingSlots.MAX_SLOTS + 2);
    assertThat(flush).isNotDone();
    devices[1].letGo();
    get(flush);
    transfer.assertWritten();
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldTimeOutFlushesAndContinueIfCopiesTakeTooLong(int slow) throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    devices[slow].hold();
    FluxCclException failure = failureOf(transfer.write().link().flush(Duration.ofMillis(100)));
    assertFailure(io.fluxccl.Timeout.class, failure, "rank 1");
    assertThat(transfer.link().failure()).isNull();
    devices[slow].letGo();
    transfer.flush();
    transfer.assertWritten();
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldKeepPinnedMemoryUntilTheDeviceIsDoneWhenClosedInFlight(int slow) throws Exception {
    WatchedDevice device = devices[slow];
    int before = device.openPinned();
    Transfer transfer = ranks.transfer(0, 8 << 20);
    CompletableFuture<Void> flush = writeHeldUp(transfer, slow, 1);
    transfer.link().close();
    transfer.back().close();
    transfer.closeMemory();
    assertThat(failureOf(flush)).isNotNull();
    assertThat(get(transfer.link().failed())).isNotNull();
    assertThat(get(transfer.back().failed())).isNotNull();
    ranks.awaitOpen(slow, 0);
    assertThat(device.openPinned()).isEqualTo(before + PINNED_PER_END);
    device.letGo();
    Awaitility.await().until(() -> device.openPinned() == before);
  }

  /** Writes while a device is blocked, until this amount of work waits in the device. */
  private CompletableFuture<Void> writeHeldUp(Transfer transfer, int slow, int work) {
    devices[slow].hold();
    CompletableFuture<Void> flush = transfer.write().flushing();
    Awaitility.await().until(() -> devices[slow].heldWork() >= work);
    return flush;
  }

  /** A new connection between watched buffers. */
  private Transfer transfer(int size, WatchedBuffer[] buffers) throws Exception {
    for (int rank = 0; rank < 2; rank++) {
      buffers[rank] = new WatchedBuffer(ranks.allocate(rank, size));
    }
    List<Connection> ends = ranks.connect(0);
    RegisteredMemory target = ranks.register(1, buffers[1].buffer());
    RegisteredMemory source = ranks.register(0, buffers[0].buffer());
    return new Transfer(ends.get(0), ends.get(1), source, target, ranks.seenByPeer(target));
  }

  private static void awaitReleased(WatchedBuffer... buffers) {
    for (WatchedBuffer buffer : buffers) {
      Awaitility.await()
          .untilAsserted(
              () -> assertThat(buffer.released()).isEqualTo(buffer.retained()).isPositive());
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldKeepMemoryUntilCopiesAreDoneWhenItIsDeregistered(int slow) throws Exception {
    WatchedBuffer[] buffers = new WatchedBuffer[2];
    Transfer transfer = transfer(1 << 20, buffers);
    // All pieces of the payload, each with its mark.
    CompletableFuture<Void> flush = writeHeldUp(transfer, slow, 8);
    RegisteredMemory memory = slow == 0 ? transfer.source() : transfer.target();
    memory.close();
    assertThat(buffers[slow].released()).isZero();
    devices[slow].letGo();
    get(flush);
    transfer.closeMemory();
    awaitReleased(buffers);
  }

  @Test
  void shouldKeepMemoryUntilCopiesAreDoneWhenItsContextIsClosed() throws Exception {
    WatchedBuffer[] buffers = new WatchedBuffer[2];
    // All pieces of the payload: then the source is read.
    writeHeldUp(transfer(1 << 20, buffers), 1, 8);
    ranks.context(0).close();
    ranks.context(1).close();
    awaitReleased(buffers[0]);
    assertThat(buffers[1].released()).isZero();
    devices[1].letGo();
    awaitReleased(buffers[1]);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldFailBothEndsAndReleaseMemoryIfADeviceDies(int bad) throws Exception {
    WatchedBuffer[] buffers = new WatchedBuffer[2];
    Transfer transfer = transfer(64, buffers);
    devices[bad].die(BROKEN);
    CompletableFuture<Void> flush = transfer.write().flushing();
    assertFailed(transfer, bad);
    assertThat(failureOf(flush)).isInstanceOf(TransportFailure.class);
    transfer.closeMemory();
    awaitReleased(buffers);
    devices[bad].die(null);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldFailBothEndsWhenADeviceRefusesACopy(int bad) throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    devices[bad].refuse(BROKEN);
    transfer.write();
    assertFailed(transfer, bad);
    devices[bad].refuse(null);
  }

  static void assertFailed(Transfer transfer, int bad) throws Exception {
    List<Connection> ends = List.of(transfer.link(), transfer.back());
    FluxCclException failure = get(ends.get(bad).failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("CUDA_ERROR_ILLEGAL_ADDRESS")
        .hasCause(BROKEN);
    assertThat(failure.rank()).isEqualTo(bad);
    FluxCclException other = get(ends.get(1 - bad).failed());
    assertFailureOf(bad, TransportFailure.class, other);
  }

  @Test
  void shouldFailBothEndsWhenADeviceThrowsAnError() throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    devices[0].failWith(new InternalError("of a test"));
    assertFailure(TransportFailure.class, failureOf(transfer.write().flushing()), "of a test");
    devices[0].failWith(null);
    assertThat(get(transfer.back().failed())).isInstanceOf(TransportFailure.class);
    get(ranks.connect(1).get(0).flush(LIMIT));
  }

  @Test
  void shouldFailAllPendingFuturesIfPinnedMemoryCannotBeClosed() throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    CompletableFuture<Connection> connecting =
        ranks
            .endpoint(0, 1, 1)
            .connect(ranks.endpoint(1, 0, 1).wire(), Deadline.after(Duration.ofMillis(500)));
    devices[1].hold();
    CompletableFuture<Void> flush = transfer.write().flushing();
    devices[0].closeBadly(true);
    assertThat(failureOf(connecting)).isInstanceOf(io.fluxccl.Timeout.class);
    transfer.link().close();
    assertThat(get(transfer.link().failed())).isInstanceOf(Aborted.class);
    assertThat(failureOf(flush)).isInstanceOf(Aborted.class);
    ranks.awaitOpen(0, 0);
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

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldNamePeerThatDiesWhileCopiesAreHeldUp(int slow) throws Exception {
    Transfer transfer = ranks.transfer(0, 32 << 20);
    CompletableFuture<Void> flush = writeHeldUp(transfer, slow, 1);
    ranks.sever(1);
    FluxCclException failure = get(transfer.link().failed());
    assertFailureOf(1, TransportFailure.class, failure);
    assertThat(failureOf(flush)).isSameAs(failure);
  }

  @Test
  void shouldTakeNoPinnedMemoryOrStreamsIfSocketsReachTheMemory() throws Exception {
    WatchedDevice[] hosts = {
      new WatchedDevice(HostDevice.create()), new WatchedDevice(HostDevice.create())
    };
    try (NetRanks plain = NetRanks.ethernet(null, hosts[0], hosts[1])) {
      plain.transfer(0, 1 << 20).check();
      assertThat(hosts[0].openPinned() + hosts[1].openPinned()).isZero();
      assertThat(hosts[0].openStreams() + hosts[1].openStreams()).isZero();
    }
  }

  @Test
  void shouldRefuseSourceOfAnotherCommunicator() throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    try (NetRanks others = NetRanks.staged(watched(), watched())) {
      RegisteredMemory foreign = others.memory(0, 64);
      assertRefused(
          () -> transfer.link().write(transfer.remote(), 0, foreign, 0, 64),
          "was not registered with, or received by, this communicator");
    }
    assertThat(transfer.link().failure()).isNull();
  }
}
