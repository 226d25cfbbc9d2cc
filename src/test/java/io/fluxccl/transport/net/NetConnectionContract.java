package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.bytes;
import static io.fluxccl.transport.net.NetRanks.get;
import static io.fluxccl.transport.net.NetRanks.getLong;
import static io.fluxccl.transport.net.NetRanks.putLong;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RegisteredMemory;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What a connection does, over whichever plugin. */
@RequiresNativeLibrary
@Timeout(120)
abstract class NetConnectionContract {
  @TempDir private static Path folder;

  private NetRanks ranks;

  /** Two ranks over the plugin, whose library may be built in the folder. */
  abstract NetRanks open(Path folder) throws Exception;

  @BeforeEach
  void open() throws Exception {
    ranks = open(folder);
  }

  @AfterEach
  void close() {
    ranks.close();
  }

  @Test
  void shouldPlaceBytesOfAllSizesInPeersMemoryWhenFlushed() throws Exception {
    Connection link = ranks.connect(3).get(0);
    RegisteredMemory source = ranks.filled(0, 5 << 20, 7);
    RegisteredMemory target = ranks.memory(1, 5 << 20);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int size : new int[] {1, 900, 4096, 4097, 1 << 20, (4 << 20) + 12345}) {
      target.buffer().upload(0, ByteBuffer.allocate(5 << 20));
      link.write(remote, 100, source, 5, size);
      get(link.flush(LIMIT));
      assertThat(bytes(target, 100, size)).isEqualTo(bytes(source, 5, size));
      assertThat(bytes(target, 0, 100)).containsOnly(0);
      assertThat(bytes(target, 100 + size, 50)).containsOnly(0);
    }
    assertThat(link.transport()).hasToString("NET");
    assertThat(link.remoteRank()).isEqualTo(1);
    assertThat(link.tag()).isEqualTo(3);
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldDoNothingWhenWriteHasNoBytes() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 8);
    link.write(ranks.seenByPeer(ranks.memory(1, 8)), 8, source, 8, 0);
    get(link.flush(LIMIT));
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldPlaceManySmallWritesWhenFlushedOnce() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int count = 70_000; // more than may wait
    RegisteredMemory source = ranks.filled(0, count * 8, 3);
    RegisteredMemory target = ranks.memory(1, count * 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int i = 0; i < count; i++) {
      link.write(remote, i * 8L, source, i * 8L, 8);
    }
    get(link.flush(LIMIT));
    assertThat(bytes(target, 0, count * 8)).isEqualTo(bytes(source, 0, count * 8));
  }

  @Test
  void shouldNeverShowSignalBeforeItsData() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int longs = 32 << 10; // 256 KiB, on a rail; and 8 bytes within a message
    RegisteredMemory source = ranks.memory(0, longs * 8L);
    RegisteredMemory target = ranks.memory(1, longs * 8L + 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    AtomicLong counter = new AtomicLong();
    int rounds = 2000;
    for (int round = 1; round <= rounds; round++) {
      int words = round % 4 == 0 ? longs : round % 4 == 1 ? 1024 : 1;
      putLong(source, 0, round);
      putLong(source, (words - 1) * 8L, round);
      link.write(remote, 0, source, 0, words * 8L);
      link.updateAndSync(remote, longs * 8L, counter, round);
      while (getLong(target, longs * 8L) < round && link.failure() == null) {
        Thread.yield();
      }
      assertThat(link.failure()).isNull();
      assertThat(getLong(target, 0)).isEqualTo(round);
      assertThat(getLong(target, (words - 1) * 8L)).isEqualTo(round);
    }
    assertThat(counter).hasValue(rounds);
  }

  /** Short writes within messages, and longer ones beside them, to the same place. */
  @Test
  void shouldKeepTheOrderOfWritesToOnePlace() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int size = 64 << 10;
    int count = 50;
    RegisteredMemory source = ranks.filled(0, size * count, 3);
    RegisteredMemory target = ranks.memory(1, size);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int round = 0; round < 5; round++) {
      for (int i = 0; i < count; i++) {
        link.write(remote, 0, source, (long) i * size, size);
        link.write(remote, 100, source, i, 8);
      }
      get(link.flush(LIMIT));
      byte[] expected = bytes(source, (count - 1) * size, size);
      System.arraycopy(bytes(source, count - 1, 8), 0, expected, 100, 8);
      assertThat(bytes(target, 0, size)).isEqualTo(expected);
    }
  }

  @Test
  void shouldKeepOrderWhenPostsOutrunTheQueue() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 8192);
    RegisteredMemory target = ranks.memory(1, 16384);
    RegisteredMemory remote = ranks.seenByPeer(target);
    AtomicLong counter = new AtomicLong();
    CountDownLatch release = block(ranks.context(0));
    for (int i = 1; i <= 20_000; i++) {
      link.updateAndSync(remote, 0, counter, i);
      if (i % 100 == 0) {
        link.write(remote, 8192, source, 0, 8192);
      }
    }
    release.countDown();
    get(link.flush(LIMIT));
    assertThat(getLong(target, 0)).isEqualTo(20_000);
  }

  /** Holds a context's agent up until the latch is counted down. */
  static CountDownLatch block(NetContext context) throws InterruptedException {
    CountDownLatch blocked = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    context
        .agent()
        .execute(
            () -> {
              blocked.countDown();
              try {
                release.await(60, TimeUnit.SECONDS);
              } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
              }
            });
    assertThat(blocked.await(60, TimeUnit.SECONDS)).isTrue();
    return release;
  }

  @Test
  void shouldConnectRankToItselfByTwoEndsAndByOne() throws Exception {
    RegisteredMemory source = ranks.filled(0, 64, 1);
    RegisteredMemory target = ranks.memory(0, 64);
    Connection link = ranks.connect(0, 0, 5).get(0);
    link.write(target, 0, source, 0, 64);
    get(link.flush(LIMIT));
    assertThat(bytes(target, 0, 64)).isEqualTo(bytes(source, 0, 64));

    RegisteredMemory other = ranks.memory(0, 64);
    Endpoint end = ranks.endpoint(0, 0, 6);
    Connection own = get(end.connect(end.wire(), Deadline.after(LIMIT)));
    own.write(other, 0, source, 0, 64);
    get(own.flush(LIMIT));
    assertThat(bytes(other, 0, 64)).isEqualTo(bytes(source, 0, 64));
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
    RegisteredMemory source = ranks.filled(0, 64, 1);
    RegisteredMemory target = ranks.memory(1, 64);
    links.get(2).write(ranks.seenByPeer(target), 0, source, 0, 64);
    get(links.get(2).flush(LIMIT));
    assertThat(bytes(target, 0, 64)).isEqualTo(bytes(source, 0, 64));
  }

  @Test
  void shouldWriteInBothDirectionsAtOnce() throws Exception {
    List<Connection> ends = ranks.connect(0);
    int size = 32 << 20;
    RegisteredMemory[] sources = {ranks.filled(0, size, 1), ranks.filled(1, size, 2)};
    RegisteredMemory[] targets = {ranks.memory(0, size), ranks.memory(1, size)};
    List<CompletableFuture<Void>> flushes = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      Connection link = ends.get(rank);
      link.write(ranks.seenByPeer(targets[1 - rank]), 0, sources[rank], 0, size);
      flushes.add(link.flush(LIMIT));
    }
    for (CompletableFuture<Void> flush : flushes) {
      get(flush);
    }
    assertThat(bytes(targets[1], 0, size)).isEqualTo(bytes(sources[0], 0, size));
    assertThat(bytes(targets[0], 0, size)).isEqualTo(bytes(sources[1], 0, size));
  }

  @Test
  void shouldServeFourThreadsThatWriteAndFlushAtOnce() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int part = 40_000;
    RegisteredMemory source = ranks.filled(0, 4 * part, 9);
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
                  for (int at = start; at < start + part; at += 10_000) {
                    link.write(remote, at, source, at, 1000);
                    link.write(remote, at + 1000, source, at + 1000, 9000);
                    link.flush(LIMIT).join();
                    assertThat(bytes(target, at, 10_000)).isEqualTo(bytes(source, at, 10_000));
                  }
                },
                threads));
      }
      for (CompletableFuture<Void> thread : done) {
        get(thread);
      }
    } finally {
      threads.shutdownNow();
    }
  }

  @Test
  void shouldRaiseFlushedTicketWhenPeerHasAll() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.filled(0, 64, 1);
    link.write(ranks.seenByPeer(ranks.memory(1, 64)), 0, source, 0, 64);
    long first = link.beginFlush();
    long second = link.beginFlush();
    assertThat(second).isGreaterThan(first);
    Awaitility.await().atMost(LIMIT).until(() -> link.flushedTicket() >= second);
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
  void shouldFailPostsWithoutFailingAtOnceWhenPeerLeavesInOrder() throws Exception {
    List<Connection> ends = ranks.connect(0);
    RegisteredMemory source = ranks.filled(0, 64, 1);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    ends.get(0).write(remote, 0, source, 0, 64);
    get(ends.get(0).flush(LIMIT));

    ends.get(1).close();

    Awaitility.await()
        .atMost(LIMIT)
        .untilAsserted(
            () ->
                assertThatThrownBy(() -> ends.get(0).write(remote, 0, source, 0, 64))
                    .isInstanceOf(TransportFailure.class)
                    .hasMessageContaining("rank 1 has closed its end"));
    assertThat(get(ends.get(1).failed())).isInstanceOf(Aborted.class);
    Awaitility.await().atMost(LIMIT).until(() -> ranks.context(1).openConnections() == 0);
  }

  @Test
  void shouldTimeOutNamingRankWhenPeerDoesNotAnswerAFlush() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 1 << 20);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    CountDownLatch release = block(ranks.context(1));
    try {
      link.write(remote, 0, source, 0, 64);
      assertThatThrownBy(() -> get(link.flush(Duration.ofMillis(100))))
          .hasCauseInstanceOf(io.fluxccl.Timeout.class)
          .hasMessageContaining("flush")
          .hasMessageContaining("rank 1")
          .cause()
          .extracting("rank")
          .isEqualTo(1);
      assertThat(link.failure()).isNull();
    } finally {
      release.countDown();
    }
    get(link.flush(LIMIT));
  }

  @Test
  void shouldAllocateNothingWhenPostingInSteadyState() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64 << 10);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64 << 10));
    AtomicLong counter = new AtomicLong();
    var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long[] ids = {Thread.currentThread().getId(), agentOf(0), agentOf(1)};
    long allocated = -1;
    for (int round = 0; round < 60 && allocated != 0; round++) {
      long before = allocated(threads, ids);
      for (int i = 0; i < 100; i++) {
        link.write(remote, 0, source, 0, 8);
        link.write(remote, 0, source, 0, 64 << 10);
        link.updateAndSync(remote, 0, counter, i);
      }
      long ticket = link.beginFlush();
      while (link.flushedTicket() < ticket && link.failure() == null) {
        Thread.yield();
      }
      allocated = allocated(threads, ids) - before;
    }
    assertThat(link.failure()).isNull();
    assertThat(allocated).as("bytes for 301 posts, by who posts and both agents").isZero();
  }

  private long agentOf(int rank) throws Exception {
    CompletableFuture<Long> id = new CompletableFuture<>();
    ranks.context(rank).agent().execute(() -> id.complete(Thread.currentThread().getId()));
    return get(id);
  }

  private static long allocated(com.sun.management.ThreadMXBean threads, long[] ids) {
    long bytes = 0;
    for (long id : ids) {
      bytes += threads.getThreadAllocatedBytes(id);
    }
    return bytes;
  }

  @Test
  void shouldLeaveNothingBehind() throws Exception {
    for (int round = 0; round < 3; round++) {
      List<Connection> ends = ranks.connect(round);
      ends.forEach(Connection::close);
    }
    for (int rank = 0; rank < 2; rank++) {
      int which = rank;
      Awaitility.await().atMost(LIMIT).until(() -> ranks.context(which).openConnections() == 0);
    }
  }
}
