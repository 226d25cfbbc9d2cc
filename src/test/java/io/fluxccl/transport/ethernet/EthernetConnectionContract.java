package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RegisteredMemory;
import io.netty.util.ResourceLeakDetector;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** Run by epoll and by NIO, for memory that sockets reach and for memory that they can't. */
@Timeout(60)
abstract class EthernetConnectionContract {
  private static final long FACTOR = 0x9e3779b97f4a7c15L;

  private final Supplier<Ranks> opener;
  private Ranks ranks;

  EthernetConnectionContract(Supplier<Ranks> opener) {
    this.opener = opener;
  }

  @BeforeAll
  static void watchForLeaks() {
    ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.PARANOID);
  }

  @BeforeEach
  void open() {
    ranks = opener.get();
  }

  @AfterEach
  void close() throws Exception {
    ranks.close();
  }

  @Test
  void shouldPlaceBytesInPeersMemoryWhenFlushed() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = filled(0, 1000, 7);
    RegisteredMemory target = ranks.memory(1, 1000);

    link.write(ranks.seenByPeer(target), 100, source, 5, 900);
    Ranks.get(link.flush(Ranks.LIMIT));

    assertSame(target, 100, source, 5, 900);
    assertThat(Contents.getLong(target, 0)).isZero();
    assertThat(link.remoteRank()).isEqualTo(1);
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldDoNothingWhenWriteHasNoBytes() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 8);
    link.write(ranks.seenByPeer(ranks.memory(1, 8)), 8, source, 8, 0);
    Ranks.get(link.flush(Ranks.LIMIT));
    assertThat(link.failure()).isNull();
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
    assertSame(target, size, source, 64, 8);
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
  void shouldPlaceManySmallWritesWhenFlushedOnce() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int count = 50_000; // more than the queue's ring holds
    RegisteredMemory source = filled(0, count * 8, 3);
    RegisteredMemory target = ranks.memory(1, count * 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int i = 0; i < count; i++) {
      link.write(remote, i * 8L, source, i * 8L, 8);
    }
    Ranks.get(link.flush(Ranks.LIMIT));
    assertSame(target, 0, source, 0, count * 8);
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
  void shouldNeverShowSignalBeforeItsData() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int longs = 1024; // 8 KiB: beyond what is copied when posted
    RegisteredMemory source = ranks.memory(0, longs * 8);
    RegisteredMemory target = ranks.memory(1, longs * 8 + 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    AtomicLong counter = new AtomicLong();
    int rounds = ranks.areStaged() ? 2000 : 10_000; // an order of magnitude slower
    for (int round = 1; round <= rounds; round++) {
      int words = (round & 1) == 0 ? longs : 1;
      Contents.putLong(source, 0, round);
      Contents.putLong(source, (words - 1) * 8L, round);
      link.write(remote, 0, source, 0, words * 8L);
      link.updateAndSync(remote, longs * 8, counter, round);
      long deadline = System.nanoTime() + Ranks.LIMIT.toNanos();
      while (Contents.getLong(target, longs * 8L) < round && System.nanoTime() < deadline) {
        Thread.onSpinWait();
      }
      assertThat(Contents.getLong(target, 0)).isEqualTo(round);
      assertThat(Contents.getLong(target, (words - 1) * 8L)).isEqualTo(round);
    }
    assertThat(counter).hasValue(rounds);
  }

  @Test
  void shouldConnectRankToItselfByTwoEndsAndByOne() throws Exception {
    RegisteredMemory source = filled(0, 64, 1);
    RegisteredMemory target = ranks.memory(0, 64);
    Connection link = ranks.connect(0, 0, 5).get(0);
    link.write(target, 0, source, 0, 64);
    Ranks.get(link.flush(Ranks.LIMIT));
    assertSame(target, 0, source, 0, 64);

    RegisteredMemory other = ranks.memory(0, 64);
    Endpoint end = ranks.endpoint(0, 0, 6);
    Connection own = Ranks.get(end.connect(end.wire(), io.fluxccl.Deadline.after(Ranks.LIMIT)));
    own.write(other, 0, source, 0, 64);
    Ranks.get(own.flush(Ranks.LIMIT));
    assertSame(other, 0, source, 0, 64);
    own.close();
    assertThat(own.failure()).isInstanceOf(Aborted.class);
  }

  @Test
  void shouldKeepSeveralConnectionsToOnePeerApart() throws Exception {
    List<Connection> links = new ArrayList<>();
    for (int tag = 0; tag < 4; tag++) {
      List<Connection> ends = ranks.connect(tag);
      assertThat(ends.get(1).tag()).isEqualTo(tag);
      links.add(ends.get(0));
    }
    links.get(1).close();
    RegisteredMemory source = filled(0, 64, 1);
    RegisteredMemory target = ranks.memory(1, 64);
    links.get(2).write(ranks.seenByPeer(target), 0, source, 0, 64);
    Ranks.get(links.get(2).flush(Ranks.LIMIT));
    assertSame(target, 0, source, 0, 64);
  }

  @Test
  void shouldWriteInBothDirectionsAtOnce() throws Exception {
    List<Connection> ends = ranks.connect(0);
    int size = 16 << 20;
    RegisteredMemory[] sources = {filled(0, size, 1), filled(1, size, 2)};
    RegisteredMemory[] targets = {ranks.memory(0, size), ranks.memory(1, size)};
    List<CompletableFuture<Void>> flushes = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      Connection link = ends.get(rank);
      link.write(ranks.seenByPeer(targets[1 - rank]), 0, sources[rank], 0, size);
      flushes.add(link.flush(Ranks.LIMIT));
    }
    for (CompletableFuture<Void> flush : flushes) {
      Ranks.get(flush);
    }
    assertSame(targets[1], 0, sources[0], 0, size);
    assertSame(targets[0], 0, sources[1], 0, size);
  }

  @Test
  void shouldServeFourThreadsThatWriteAndFlushAtOnce() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int part = 20_000;
    RegisteredMemory source = filled(0, 4 * part, 9);
    RegisteredMemory target = ranks.memory(1, 4 * part);
    RegisteredMemory remote = ranks.seenByPeer(target);
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try {
      List<CompletableFuture<Void>> done = new ArrayList<>();
      for (int thread = 0; thread < 4; thread++) {
        int start = thread * part;
        done.add(
            CompletableFuture.runAsync(
                () -> {
                  for (int at = 0; at < part; at += 2500) {
                    link.write(remote, start + at, source, start + at, 1000);
                    link.write(remote, start + at + 1000, source, start + at + 1000, 1500);
                    link.flush(Ranks.LIMIT).join();
                    assertSame(target, start + at, source, start + at, 2500);
                  }
                },
                threads));
      }
      for (CompletableFuture<Void> thread : done) {
        Ranks.get(thread);
      }
    } finally {
      threads.shutdownNow();
    }
  }

  @Test
  void shouldRaiseFlushedTicketWhenPeerHasAll() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = filled(0, 64, 1);
    link.write(ranks.seenByPeer(ranks.memory(1, 64)), 0, source, 0, 64);
    long first = link.beginFlush();
    long second = link.beginFlush();
    assertThat(second).isGreaterThan(first);
    Awaitility.await().until(() -> link.flushedTicket() >= second);
  }

  @Test
  void shouldRefuseRangesAndMemoriesThatCannotBe() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    assertThatThrownBy(() -> link.write(remote, 1, source, 0, 64)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> link.write(remote, 0, source, 1, 64)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> link.write(source, 0, source, 0, 8))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("rank 0");
    assertThatThrownBy(() -> link.write(remote, 0, remote, 0, 8)).isInstanceOf(InvalidUsage.class);
    AtomicLong counter = new AtomicLong(3);
    assertThatThrownBy(() -> link.updateAndSync(remote, 4, counter, 5))
        .isInstanceOf(InvalidUsage.class);
    assertThat(counter).hasValue(3);
    source.close();
    assertThatThrownBy(() -> link.write(remote, 0, source, 0, 8)).isInstanceOf(InvalidUsage.class);
    assertThat(link.failure()).isNull();
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
  void shouldFailPostsWithoutFailingAtOnceWhenPeerLeavesInOrder() throws Exception {
    List<Connection> ends = ranks.connect(0);
    RegisteredMemory source = filled(0, 64, 1);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    ends.get(0).write(remote, 0, source, 0, 64);
    Ranks.get(ends.get(0).flush(Ranks.LIMIT));

    ends.get(1).close();

    Awaitility.await()
        .untilAsserted(
            () ->
                assertThatThrownBy(() -> ends.get(0).write(remote, 0, source, 0, 64))
                    .isInstanceOf(TransportFailure.class)
                    .hasMessageContaining("rank 1 has closed its end"));
    assertThat(Ranks.get(ends.get(1).failed())).isInstanceOf(Aborted.class);
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

  private RegisteredMemory filled(int rank, int size, int seed) {
    RegisteredMemory memory = ranks.memory(rank, size);
    Contents.fill(memory, seed);
    return memory;
  }

  static void assertSame(
      RegisteredMemory target, long targetOffset, RegisteredMemory source, long offset, int size) {
    assertThat(bytes(target, targetOffset, size)).isEqualTo(bytes(source, offset, size));
  }

  static byte[] bytes(RegisteredMemory memory, long offset, int size) {
    return Contents.get(memory, offset, size);
  }
}
