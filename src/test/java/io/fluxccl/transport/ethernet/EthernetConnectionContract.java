package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.netty.util.ResourceLeakDetector;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** Run by epoll and by NIO, for memory that sockets reach and for memory that they can't. */
@Timeout(60)
abstract class EthernetConnectionContract extends ConnectionContract<Ranks> {
  private static final long FACTOR = 0x9e3779b97f4a7c15L;

  private final Supplier<Ranks> opener;

  EthernetConnectionContract(Supplier<Ranks> opener) {
    this.opener = opener;
  }

  @BeforeAll
  static void watchForLeaks() {
    ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.PARANOID);
  }

  @Override
  protected Ranks openRanks() {
    return opener.get();
  }

  /** What is staged is an order of magnitude slower. */
  @Override
  protected int signalRounds() {
    return ranks.areStaged() ? 2000 : super.signalRounds();
  }

  @Test
  void shouldHoldFewBatchesWhenThePeerDoesNotRead() throws Exception {
    Connection link = ranks.connect(0).get(0);
    EthernetConnection writer = (EthernetConnection) link;
    RegisteredMemory source = ranks.memory(0, 1 << 20);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 1 << 20));
    AtomicLong signals = new AtomicLong();
    CountDownLatch release = EthernetFailureContract.block(ranks.context(1).loop());
    try {
      do {
        link.write(remote, 0, source, 0, 1 << 20);
      } while (EthernetFailureContract.onLoop(ranks.context(0), writer::isDrained));
      for (int i = 1; i <= 2000; i++) {
        link.updateAndSync(remote, 0, signals, i);
        // Each is taken alone, and gets a batch.
        EthernetFailureContract.onLoop(ranks.context(0), writer::isDrained);
      }
      assertThat(EthernetFailureContract.onLoop(ranks.context(0), ranks.context(0).pool()::lent))
          .isLessThan(300);
    } finally {
      release.countDown();
    }
    Ranks.get(link.flush(Ranks.LIMIT));
  }

  /** It passed the look at whether the peer is there, and the peer left before it was posted. */
  @Test
  void shouldFailWhenAFlushIsPostedJustAfterThePeerHasLeft() throws Exception {
    List<Connection> ends = ranks.connect(0);
    EthernetConnection link = (EthernetConnection) ends.get(0);
    ends.get(1).close();
    // The peer's socket and this side's are gone: only the listeners are left.
    Awaitility.await()
        .until(() -> ranks.context(0).openSockets() == 1 && ranks.context(1).openSockets() == 1);
    assertThat(link.failure()).isNull();

    link.postFlush();

    assertThat(Ranks.get(link.failed()))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 1 has closed its end");
  }

  @Test
  void shouldCarryWriteOf300MiBAndWhatFollowsIt() throws Exception {
    long size = 300L << 20;
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, size);
    Contents.fillWords(source, FACTOR);
    RegisteredMemory target = ranks.memory(1, size + 8);
    RegisteredMemory remote = ranks.seenByPeer(target);

    link.write(remote, 0, source, 0, size).write(remote, size, source, 64, 8);
    Ranks.get(link.flush(Ranks.LIMIT));

    assertThat(Contents.firstDifference(target, size, FACTOR)).isEqualTo(-1);
    Contents.assertSame(target, size, source, 64, 8);
  }

  @Test
  @EnabledIfSystemProperty(named = "fluxccl.test.large", matches = "true")
  void shouldCarryOneWriteOfMoreThan2GiB() throws Exception {
    long size = (2L << 30) + 12345;
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, size);
    RegisteredMemory target = ranks.memory(1, size);
    Contents.fillWords(source, FACTOR);
    link.write(ranks.seenByPeer(target), 0, source, 0, size);
    Ranks.get(link.flush(Ranks.LIMIT));
    assertThat(Contents.firstDifference(target, size, FACTOR)).isEqualTo(-1);
  }

  @Test
  void shouldKeepOrderWhenPostsOutrunTheQueue() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 8192);
    RegisteredMemory target = ranks.memory(1, 16384);
    RegisteredMemory remote = ranks.seenByPeer(target);
    AtomicLong counter = new AtomicLong();
    var release = EthernetFailureContract.block(ranks.context(0).loop());
    for (int i = 1; i <= 20_000; i++) {
      link.updateAndSync(remote, 0, counter, i);
      if (i % 100 == 0) {
        link.write(remote, 8192, source, 0, 8192);
      }
    }
    release.countDown();
    Ranks.get(link.flush(Ranks.LIMIT));
    assertThat(Contents.getLong(target, 0)).isEqualTo(20_000);
  }

  @Test
  void shouldRefuseMemoryThatSocketsCannotReach() {
    Device gpu = mock(Device.class);
    when(gpu.kind()).thenReturn(DeviceKind.CUDA);
    when(gpu.index()).thenReturn(99);
    DeviceBuffer buffer = mock(DeviceBuffer.class);
    when(buffer.device()).thenReturn(gpu);
    when(buffer.size()).thenReturn(8L);
    assertThatThrownBy(() -> ranks.context(0).register(buffer))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("CUDA");
  }

  @Test
  void shouldAllocateNothingWhenPostingInSteadyState() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64 << 10);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64 << 10));
    AtomicLong counter = new AtomicLong();
    var threads =
        (com.sun.management.ThreadMXBean) java.lang.management.ManagementFactory.getThreadMXBean();
    long allocated = 0;
    for (int round = 0; round < 40; round++) {
      long before = threads.getThreadAllocatedBytes(Thread.currentThread().getId());
      for (int i = 0; i < 100; i++) {
        link.write(remote, 0, source, 0, 8);
        link.write(remote, 0, source, 0, 64 << 10);
        link.updateAndSync(remote, 0, counter, i);
      }
      long ticket = link.beginFlush();
      while (link.flushedTicket() < ticket && link.failure() == null) {
        Thread.onSpinWait();
      }
      allocated = threads.getThreadAllocatedBytes(Thread.currentThread().getId()) - before;
    }
    assertThat(allocated).as("bytes of the last 300 posts").isLessThan(3000);
  }
}
