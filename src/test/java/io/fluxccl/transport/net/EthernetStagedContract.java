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
import io.fluxccl.testing.HangLimit;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.WatchedBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntFunction;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * ETHERNET between devices whose memory is staged. Signals are seen after the data that precede
 * them, whatever else the connection and others move. Devices are slow, refuse or die, and ends
 * close meanwhile.
 */
@Timeout(120)
abstract class EthernetStagedContract {
  static final DeviceFailure BROKEN =
      new DeviceFailure(
          700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuMemcpyAsync on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS");

  /** Slots and their words, in each direction. */
  private static final int PINNED_PER_END = 4;

  private final IntFunction<Device> opener;
  private WatchedDevice[] devices;
  private NetRanks ranks;

  EthernetStagedContract(IntFunction<Device> opener) {
    this.opener = opener;
  }

  @BeforeEach
  void open() {
    devices = new WatchedDevice[] {watched(0), watched(1)};
    ranks = NetRanks.staged(devices[0], devices[1]);
  }

  private WatchedDevice watched(int rank) {
    return new WatchedDevice(opener.apply(rank));
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
    // All pieces of the payload, each with its mark, and the questions whether the device works.
    CompletableFuture<Void> flush = writeHeldUp(transfer, slow, 10);
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
    // All pieces of the payload, as above: then the source is read.
    writeHeldUp(transfer(1 << 20, buffers), 1, 10);
    ranks.context(0).close();
    ranks.context(1).close();
    awaitReleased(buffers[0]);
    assertThat(buffers[1].released()).isZero();
    devices[1].letGo();
    awaitReleased(buffers[1]);
  }

  @ParameterizedTest
  @CsvSource({"0, false", "1, false", "0, true", "1, true"})
  void shouldFailBothEndsAndReleaseMemoryIfADeviceDiesOrRefusesACopy(int bad, boolean refuses)
      throws Exception {
    WatchedBuffer[] buffers = new WatchedBuffer[2];
    Transfer transfer = transfer(64, buffers);
    devices[bad].die(refuses ? null : BROKEN);
    devices[bad].refuse(refuses ? BROKEN : null);
    CompletableFuture<Void> flush = transfer.write().flushing();
    assertFailed(transfer, bad);
    assertThat(failureOf(flush)).isInstanceOf(TransportFailure.class);
    transfer.closeMemory();
    devices[bad].refuse(null);
    awaitReleased(buffers);
    devices[bad].die(null);
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
    try (NetRanks others = NetRanks.staged(watched(0), watched(1))) {
      RegisteredMemory foreign = others.memory(0, 64);
      assertRefused(
          () -> transfer.link().write(transfer.remote(), 0, foreign, 0, 64),
          "was not registered with, or received by, this communicator");
    }
    assertThat(transfer.link().failure()).isNull();
  }

  @Test
  void shouldNeverShowSignalBeforeItsDataUnderLoad() throws Exception {
    assertOrder(ranks.memory(1, 8), Rounds.of(1000, 3000));
  }

  @Test
  void shouldNeverShowSignalInHostMemoryBeforeDataInTheDevices() throws Exception {
    assertOrder(ranks.direct(1, 8), Rounds.of(400, 1000));
  }

  /** Posts as fast as it can; the data before a signal must be visible when the signal is. */
  private void assertOrder(RegisteredMemory signal, int rounds) throws Exception {
    int slot = 3000;
    Transfer transfer = ranks.transfer(0, rounds * slot);
    RegisteredMemory remoteSignal = ranks.seenByPeer(signal);
    for (int i = 0; i < rounds; i++) {
      Contents.putLong(transfer.source(), (long) i * slot, i + 1);
      Contents.putLong(transfer.source(), (long) i * slot + 2000, i + 1);
    }
    AtomicBoolean done = new AtomicBoolean();
    CompletableFuture<Void> load = CompletableFuture.runAsync(() -> load(done));
    try {
      AtomicLong counter = new AtomicLong();
      CompletableFuture<Void> posting =
          CompletableFuture.runAsync(
              () -> {
                for (int i = 0; i < rounds; i++) {
                  transfer.write((long) i * slot, (long) i * slot, i % 3 == 0 ? slot : 2008);
                  transfer.link().updateAndSync(remoteSignal, 0, counter, i + 1);
                }
              });
      long began = HangLimit.start();
      for (long value = 0, seen = 0; value < rounds; seen = value) {
        value = Contents.getLong(signal, 0);
        if (value > seen) {
          long at = (value - 1) * slot;
          assertThat(Contents.getLong(transfer.target(), at)).isEqualTo(value);
          assertThat(Contents.getLong(transfer.target(), at + 2000)).isEqualTo(value);
        }
        HangLimit.check(began, "the last signal is seen");
      }
      get(posting);
    } finally {
      done.set(true);
      get(load);
    }
  }

  /** Keeps another connection between the same ranks busy. */
  private void load(AtomicBoolean done) {
    try {
      Transfer other = ranks.transfer(77, 1 << 20);
      while (!done.get()) {
        other.write().flush();
      }
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void shouldKeepOrderWhenHostAndDeviceMemoryTakeTurns() throws Exception {
    int size = 1 << 20;
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory[] sources = {ranks.memory(0, size), ranks.direct(0, size)};
    RegisteredMemory[] targets = {ranks.memory(1, size), ranks.direct(1, size)};
    RegisteredMemory[] signals = {ranks.memory(1, 8), ranks.direct(1, 8)};
    byte[][] bytes = {Contents.fill(sources[0], 1), Contents.fill(sources[1], 2)};
    byte[][] expected = {new byte[size], new byte[size]};
    AtomicLong counter = new AtomicLong();
    Random random = new Random(9);
    for (int round = 1; round <= Rounds.of(15, 60); round++) {
      for (int i = 0; i < 20; i++) {
        int from = random.nextInt(2);
        int to = random.nextInt(2);
        int length = 1 + random.nextInt(1 << (1 + random.nextInt(17)));
        int source = random.nextInt(size - length);
        int target = random.nextInt(size - length);
        link.write(ranks.seenByPeer(targets[to]), target, sources[from], source, length);
        System.arraycopy(bytes[from], source, expected[to], target, length);
      }
      RegisteredMemory signal = signals[random.nextInt(2)];
      link.updateAndSync(ranks.seenByPeer(signal), 0, counter, round);
      long began = HangLimit.start();
      while (Contents.getLong(signal, 0) < round) {
        HangLimit.check(began, "the signal is seen");
        Thread.onSpinWait();
      }
      for (int to = 0; to < 2; to++) {
        assertThat(Arrays.equals(Contents.get(targets[to], 0, size), expected[to]))
            .as("round " + round)
            .isTrue();
      }
    }
  }
}
