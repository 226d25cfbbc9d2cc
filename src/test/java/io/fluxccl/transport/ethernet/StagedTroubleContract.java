package io.fluxccl.transport.ethernet;

import static io.fluxccl.transport.ethernet.EthernetFailureContract.block;
import static io.fluxccl.transport.ethernet.EthernetFailureContract.onLoop;
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
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.WatchedBuffer;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import java.util.stream.LongStream;
import org.agrona.ExpandableArrayBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Devices that are slow, refuse or die, and ends that close meanwhile. */
@Timeout(60)
abstract class StagedTroubleContract {
  private static final DeviceFailure BROKEN =
      new DeviceFailure(
          700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuMemcpyAsync on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS");

  private final NetworkStack stack;
  private final Supplier<Device> opener;
  private final Set<DeviceBuffer> direct = ConcurrentHashMap.newKeySet();
  private WatchedDevice[] devices;
  private Ranks ranks;

  StagedTroubleContract(NetworkStack stack, Supplier<Device> opener) {
    this.stack = stack;
    this.opener = opener;
  }

  @BeforeEach
  void open() {
    devices = new WatchedDevice[] {watched(), watched()};
    ranks = new Ranks(stack, buffer -> !direct.contains(buffer), devices[0], devices[1]);
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
    CompletableFuture<Void> flush = slow.flush(Ranks.LIMIT);
    for (int i = 0; i < 100; i++) {
      other.write(ranks.seenByPeer(hostTarget), 0, hostSource, 0, 100_000);
      Ranks.get(other.flush(Ranks.LIMIT));
    }

    assertThat(flush).isNotDone();
    Contents.assertSame(hostTarget, 0, hostSource, 0, 100_000);
    devices[0].letGo();
    devices[1].letGo();
    Ranks.get(flush);
  }

  /** Threads that flush at once take their tickets in one order and may post them in another. */
  @Test
  void shouldAcknowledgeTheHighestTicketWhenTicketsComeOutOfOrder() throws Exception {
    assertHighestIsAcknowledged(LongStream.of(2, 1));
    // More than are kept apart while their copies are under way.
    assertHighestIsAcknowledged(
        LongStream.concat(
            LongStream.concat(LongStream.range(1, 60), LongStream.of(100)),
            LongStream.range(60, 100)));
  }

  private void assertHighestIsAcknowledged(LongStream order) throws Exception {
    long[] tickets = order.toArray();
    long id =
        ((EthernetMemory) ranks.seenByPeer(ranks.memory(1, 8)).handle(Transport.ETHERNET)).id();
    Endpoint end = ranks.endpoint(1, 0, tickets.length);
    StagedInput input = ranks.context(1).staging().input();
    long before = onLoop(ranks.context(1), input::position);
    InetSocketAddress address = ranks.context(1).listenAddress();
    devices[1].hold();
    try (Socket peer = new Socket(address.getAddress(), address.getPort())) {
      peer.setSoTimeout(10_000);
      ExpandableArrayBuffer out = new ExpandableArrayBuffer();
      HandshakeDescriptor.putHello(
          out, 0, tickets.length, EndpointWire.decode(end.wire(), 1).token());
      peer.getOutputStream().write(out.byteArray(), 0, HandshakeDescriptor.HELLO_LENGTH);
      InputStream in = peer.getInputStream();
      in.readNBytes(HandshakeDescriptor.WELCOME_LENGTH);
      int at = 0;
      for (long ticket : tickets) {
        at += FrameDescriptor.putUpdate(out, at, id, 0, ticket);
        at += FrameDescriptor.putFlush(out, at, ticket);
      }
      // Once this is placed, all flushes before it have come.
      at += FrameDescriptor.putUpdate(out, at, id, 0, 0);
      peer.getOutputStream().write(out.byteArray(), 0, at);
      Awaitility.await()
          .until(
              () ->
                  onLoop(ranks.context(1), input::position)
                      == before + Long.BYTES * (tickets.length + 1L));
      devices[1].letGo();

      long acknowledged = 0;
      while (acknowledged < LongStream.of(tickets).max().orElseThrow()) {
        UnsafeBuffer ack = new UnsafeBuffer(in.readNBytes(FrameDescriptor.TICKET_FRAME_LENGTH));
        assertThat(ack.getByte(FrameDescriptor.TYPE_OFFSET)).isEqualTo((byte) FrameDescriptor.ACK);
        acknowledged = ack.getLong(FrameDescriptor.TICKET_OFFSET);
      }
    }
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
    CompletableFuture<Void> flush = link.flush(Ranks.LIMIT);
    StagedInput input = ranks.context(1).staging().input();
    Awaitility.await()
        .until(() -> onLoop(ranks.context(1), input::position) == StagedInput.RING_LENGTH);
    int held = devices[1].heldWork();
    Ranks.get(ranks.connect(1).get(0).flush(Ranks.LIMIT));

    assertThat(devices[1].heldWork()).isEqualTo(held);
    assertThat(flush).isNotDone();
    devices[1].letGo();
    Ranks.get(flush);
    assertThat(Arrays.equals(Contents.get(target, 0, size), bytes)).isTrue();
  }

  @Test
  void shouldTimeOutFlushesAndGoOnWhenCopiesTakeTooLong() throws Exception {
    for (int slow = 0; slow < 2; slow++) {
      Connection link = ranks.connect(slow).get(0);
      RegisteredMemory source = ranks.memory(0, 64);
      Contents.fill(source, slow);
      RegisteredMemory target = ranks.memory(1, 64);
      devices[slow].hold();
      link.write(ranks.seenByPeer(target), 0, source, 0, 64);
      CompletableFuture<Void> flush = link.flush(Duration.ofMillis(100));
      assertThatThrownBy(() -> Ranks.get(flush))
          .hasCauseInstanceOf(io.fluxccl.Timeout.class)
          .hasMessageContaining("rank 1");
      assertThat(link.failure()).isNull();
      devices[slow].letGo();
      Ranks.get(link.flush(Ranks.LIMIT));
      Contents.assertSame(target, 0, source, 0, 64);
    }
  }

  @Test
  void shouldKeepPinnedMemoryUntilTheDeviceIsDoneWhenClosedInFlight() throws Exception {
    for (int slow = 0; slow < 2; slow++) {
      int before = devices[slow].openPinned();
      List<Connection> ends = ranks.connect(slow);
      RegisteredMemory source = ranks.memory(0, 8 << 20);
      RegisteredMemory target = ranks.memory(1, 8 << 20);
      WatchedDevice device = devices[slow];
      device.hold();
      ends.get(0).write(ranks.seenByPeer(target), 0, source, 0, 8 << 20);
      CompletableFuture<Void> flush = ends.get(0).flush(Ranks.LIMIT);
      Awaitility.await().until(() -> device.heldWork() > 0);

      ends.get(0).close();
      ends.get(1).close();
      source.close();
      target.close();

      assertThatThrownBy(() -> Ranks.get(flush)).hasCauseInstanceOf(FluxCclException.class);
      assertThat(Ranks.get(ends.get(0).failed())).isNotNull();
      assertThat(Ranks.get(ends.get(1).failed())).isNotNull();
      onLoop(ranks.context(slow), () -> true);
      assertThat(device.openPinned()).isEqualTo(before + 1);
      device.letGo();
      Awaitility.await().until(() -> device.openPinned() == before);
      Awaitility.await().until(() -> onLoop(ranks.context(0), ranks.context(0).pool()::lent) == 0);
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
      CompletableFuture<Void> flush = link.flush(Ranks.LIMIT);
      WatchedDevice device = devices[slow];
      // All pieces of the payload, each with its mark.
      Awaitility.await().until(() -> device.heldWork() >= 8);

      RegisteredMemory memory = slow == 0 ? source : target;
      memory.close();
      assertThat(buffers[slow].released()).isZero();
      device.letGo();

      Ranks.get(flush);
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
    Awaitility.await()
        .until(() -> onLoop(ranks.context(0), ((EthernetConnection) link)::isDrained));
    Awaitility.await().until(() -> devices[1].heldWork() > 0);

    ranks.context(0).close();
    ranks.context(1).close();

    awaitReleased(buffers[0]);
    assertThat(buffers[1].released()).isZero();
    devices[1].letGo();
    awaitReleased(buffers[1]);
  }

  /** The close of a handle on the event loop has the device say when it is there. */
  @Test
  void shouldReleaseMemoryWhoseCopiesCannotBeAwaited() throws Exception {
    WatchedBuffer buffer = watched(1, 64);
    RegisteredMemory target = ranks.register(1, buffer);
    OwnedMemory memory = (OwnedMemory) target.handle(Transport.ETHERNET);
    StagedInput input = ranks.context(1).staging().input();
    // In one turn of the loop, at the end of which the device would have been told.
    Throwable refusal =
        onLoop(
            ranks.context(1),
            () -> {
              input.place(memory, 0, new UnsafeBuffer(new byte[64]), 0, 64);
              devices[1].refuse(BROKEN);
              try {
                target.close();
                return null;
              } catch (DeviceFailure e) {
                return e;
              } finally {
                devices[1].refuse(null);
              }
            });
    assertThat(refusal).isSameAs(BROKEN);
    awaitReleased(buffer);
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
      CompletableFuture<Void> flush = ends.get(0).flush(Ranks.LIMIT);
      assertFailed(ends, bad);
      assertThatThrownBy(() -> Ranks.get(flush)).hasCauseInstanceOf(TransportFailure.class);
      source.close();
      target.close();
      awaitReleased(buffers);
      devices[bad].die(null);
    }
  }

  @Test
  void shouldFailNamingThisRankWhenSourceIsClosedBeforeItWasCopied() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    CountDownLatch release = block(ranks.context(0).loop());
    link.write(remote, 0, source, 0, 64);
    source.close();
    release.countDown();
    FluxCclException failure = Ranks.get(link.failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("source memory was closed");
    assertThat(failure.rank()).isZero();
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
      CompletableFuture<Void> flush = ends.get(0).flush(Ranks.LIMIT);
      assertFailed(ends, bad);
      assertThatThrownBy(() -> Ranks.get(flush)).isInstanceOf(ExecutionException.class);
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
    CompletableFuture<Void> flush = ends.get(0).flush(Ranks.LIMIT);
    assertThatThrownBy(() -> flush.get(20, TimeUnit.SECONDS))
        .hasCauseInstanceOf(TransportFailure.class)
        .hasMessageContaining("of a test");
    devices[0].failWith(null);
    assertThat(Ranks.get(ends.get(1).failed())).isInstanceOf(TransportFailure.class);
    Ranks.get(ranks.connect(1).get(0).flush(Ranks.LIMIT));
  }

  @Test
  void shouldTellAllWhoWaitWhenPinnedMemoryCannotBeClosed() throws Exception {
    Connection link = ranks.connect(0).get(0);
    CompletableFuture<Connection> connecting =
        ranks
            .endpoint(0, 1, 1)
            .connect(ranks.endpoint(1, 0, 1).wire(), Deadline.after(Duration.ofMillis(500)));
    RegisteredMemory source = ranks.memory(0, 64);
    devices[1].hold();
    link.write(ranks.seenByPeer(ranks.memory(1, 64)), 0, source, 0, 64);
    CompletableFuture<Void> flush = link.flush(Ranks.LIMIT);
    devices[0].closeBadly(true);
    assertThatThrownBy(() -> connecting.get(20, TimeUnit.SECONDS))
        .hasCauseInstanceOf(io.fluxccl.Timeout.class);
    link.close();
    assertThat(link.failed().get(20, TimeUnit.SECONDS)).isInstanceOf(Aborted.class);
    assertThatThrownBy(() -> flush.get(20, TimeUnit.SECONDS)).hasCauseInstanceOf(Aborted.class);
    onLoop(ranks.context(0), () -> true);
    devices[0].closeBadly(false);
    devices[1].letGo();
  }

  @Test
  void shouldLetGoOfAllRingsAndStreamsWhenEachSaysThatItCannotBeClosed() throws Exception {
    ranks.connect(0);
    assertThat(devices[0].openPinned()).isEqualTo(2);
    assertThat(devices[0].openStreams()).isEqualTo(2);
    devices[0].closeBadly(true);

    ranks.context(0).close();

    assertThat(ranks.context(0).loop().terminationFuture().await(10_000)).isTrue();
    Awaitility.await().until(() -> devices[0].openPinned() == 0);
    assertThat(devices[0].openStreams()).isZero();
    devices[0].closeBadly(false);
  }

  private void assertFailed(List<Connection> ends, int bad) throws Exception {
    FluxCclException failure = Ranks.get(ends.get(bad).failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("CUDA_ERROR_ILLEGAL_ADDRESS")
        .hasCause(BROKEN);
    assertThat(failure.rank()).isEqualTo(bad);
    FluxCclException other = Ranks.get(ends.get(1 - bad).failed());
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
      CompletableFuture<Void> flush = ends.get(0).flush(Ranks.LIMIT);
      Awaitility.await().until(() -> device.heldWork() > 0);
      ranks.context(1).sever();
      FluxCclException failure = Ranks.get(ends.get(0).failed());
      assertThat(failure).isInstanceOf(TransportFailure.class);
      assertThat(failure.rank()).isEqualTo(1);
      assertThatThrownBy(() -> Ranks.get(flush)).hasCause(failure);
      device.letGo();
      assertThat(Ranks.get(ends.get(1).failed())).isInstanceOf(TransportFailure.class);
      reopen();
    }
  }

  private void reopen() throws Exception {
    ranks.close();
    open();
  }

  @Test
  void shouldPlaceWhatCameBeforeAGoodbyeThatArrivesWhileTheRingIsFull() throws Exception {
    int size = StagedInput.RING_LENGTH + (200 << 10);
    List<Connection> ends = ranks.connect(0);
    RegisteredMemory source = ranks.memory(0, size);
    byte[] bytes = Contents.fill(source, 6);
    RegisteredMemory target = ranks.memory(1, size + 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    devices[1].hold();
    ends.get(0).write(remote, 0, source, 0, size);
    ends.get(0).updateAndSync(remote, size, new AtomicLong(), 5);
    EthernetConnection writer = (EthernetConnection) ends.get(0);
    Awaitility.await().until(() -> onLoop(ranks.context(0), writer::isDrained));
    ends.get(0).close();
    assertThat(Ranks.get(ends.get(0).failed())).isInstanceOf(Aborted.class);

    devices[1].letGo();

    Awaitility.await().until(() -> Contents.getLong(target, size) == 5);
    assertThat(Arrays.equals(Contents.get(target, 0, size), bytes)).isTrue();
    assertThat(ends.get(1).failure()).isNull();
    RegisteredMemory own = ranks.memory(1, 8);
    RegisteredMemory other = ranks.seenByPeer(ranks.memory(0, 8));
    Awaitility.await()
        .untilAsserted(
            () ->
                assertThatThrownBy(() -> ends.get(1).write(other, 0, own, 0, 8))
                    .isInstanceOf(TransportFailure.class)
                    .hasMessageContaining("rank 0 has closed its end"));
  }

  @Test
  void shouldTakeNothingOfADeviceWhoseMemorySocketsReach() throws Exception {
    WatchedDevice[] hosts = {
      new WatchedDevice(io.fluxccl.device.host.HostDevice.create()),
      new WatchedDevice(io.fluxccl.device.host.HostDevice.create())
    };
    try (Ranks plain = new Ranks(stack, StagingPolicy.WHERE_NEEDED, hosts[0], hosts[1])) {
      Connection link = plain.connect(0).get(0);
      RegisteredMemory source = plain.memory(0, 1 << 20);
      link.write(plain.seenByPeer(plain.memory(1, 1 << 20)), 0, source, 0, 1 << 20);
      Ranks.get(link.flush(Ranks.LIMIT));
      assertThat(hosts[0].openPinned() + hosts[1].openPinned()).isZero();
      assertThat(hosts[0].openStreams() + hosts[1].openStreams()).isZero();
    }
  }

  @Test
  void shouldRefuseSourceOfAnotherCommunicator() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    try (Ranks others = new Ranks(stack, StagingPolicy.ALWAYS, watched(), watched())) {
      RegisteredMemory foreign = others.memory(0, 64);
      assertThatThrownBy(() -> link.write(remote, 0, foreign, 0, 64))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("another communicator");
    }
    assertThat(link.failure()).isNull();
  }
}
