package io.fluxccl.transport.ib;

import static io.fluxccl.transport.ib.IbRanks.bytes;
import static io.fluxccl.transport.ib.IbRanks.get;
import static io.fluxccl.transport.ib.IbRanks.getLong;
import static io.fluxccl.transport.ib.IbRanks.putLong;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@RequiresRdma
@Timeout(120)
class IbConnectionTest {
  /** So that a few MiB are registered in pieces. */
  private static final long PIECE = 1 << 20;

  private IbRanks ranks;

  @BeforeEach
  void open() {
    ranks = new IbRanks(PIECE);
  }

  @AfterEach
  void close() {
    ranks.close();
    Awaitility.await()
        .atMost(Duration.ofSeconds(20))
        .untilAsserted(
            () -> {
              for (int rank = 0; rank < 2; rank++) {
                assertThat(ranks.context(rank).openConnections()).isZero();
                assertThat(ranks.context(rank).openHandles()).isZero();
              }
            });
  }

  @Test
  void shouldPlaceBytesInPeersMemoryWhenFlushed() throws Exception {
    Connection link = ranks.connect(3).get(0);
    RegisteredMemory source = ranks.filled(0, 1000, 7);
    RegisteredMemory target = ranks.memory(1, 1000);

    link.write(ranks.seenByPeer(target), 100, source, 5, 900);
    get(link.flush(IbRanks.LIMIT));

    assertThat(bytes(target, 100, 900)).isEqualTo(bytes(source, 5, 900));
    assertThat(getLong(target, 0)).isZero();
    assertThat(link.remoteRank()).isEqualTo(1);
    assertThat(link.tag()).isEqualTo(3);
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldDoNothingWhenWriteHasNoBytes() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 8);
    link.write(ranks.seenByPeer(ranks.memory(1, 8)), 8, source, 8, 0);
    get(link.flush(IbRanks.LIMIT));
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldSplitWritesAtMessagesAndAtPiecesOfBothMemories() throws Exception {
    int size = 5 * (int) PIECE + 12345;
    RdmaOptions options = RdmaOptions.DEFAULT.withMaxMessage(300_000).withSendQueueSize(16);
    Connection link = ranks.connect(0, 1, 0, options).get(0);
    RegisteredMemory source = ranks.filled(0, size, 1);
    RegisteredMemory target = ranks.memory(1, size + 777);
    link.write(ranks.seenByPeer(target), 777, source, 0, size);
    get(link.flush(IbRanks.LIMIT));
    assertThat(bytes(target, 777, size)).isEqualTo(bytes(source, 0, size));
  }

  @Test
  void shouldHoldBackWritesThatOutrunTheSendQueue() throws Exception {
    Connection link = ranks.connect(0, 1, 0, RdmaOptions.DEFAULT.withSendQueueSize(16)).get(0);
    int count = 20_000;
    RegisteredMemory source = ranks.filled(0, count * 8, 3);
    RegisteredMemory target = ranks.memory(1, count * 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int i = 0; i < count; i++) {
      link.write(remote, i * 8L, source, i * 8L, 8);
    }
    get(link.flush(IbRanks.LIMIT));
    assertThat(bytes(target, 0, count * 8)).isEqualTo(bytes(source, 0, count * 8));
  }

  @Test
  void shouldNeverShowSignalBeforeItsData() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int longs = 1024;
    RegisteredMemory source = ranks.memory(0, longs * 8);
    RegisteredMemory target = ranks.memory(1, longs * 8 + 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    AtomicLong counter = new AtomicLong();
    int rounds = 10_000;
    for (int round = 1; round <= rounds; round++) {
      int words = (round & 1) == 0 ? longs : 1;
      putLong(source, 0, round);
      putLong(source, (words - 1) * 8L, round);
      link.write(remote, 0, source, 0, words * 8L);
      link.updateAndSync(remote, longs * 8, counter, round);
      while (getLong(target, longs * 8L) < round && link.failure() == null) {
        Thread.yield();
      }
      assertThat(getLong(target, 0)).isEqualTo(round);
      assertThat(getLong(target, (words - 1) * 8L)).isEqualTo(round);
    }
    assertThat(counter).hasValue(rounds);
  }

  @Test
  void shouldSendEveryValueOfManySignalsInOrder() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory target = ranks.memory(1, 1000 * 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    AtomicLong counter = new AtomicLong();
    for (int i = 0; i < 1000; i++) {
      link.updateAndSync(remote, i * 8L, counter, i + 1);
    }
    get(link.flush(IbRanks.LIMIT));
    for (int i = 0; i < 1000; i++) {
      assertThat(getLong(target, i * 8L)).isEqualTo(i + 1);
    }
  }

  @Test
  void shouldConnectRankToItselfByTwoEndsAndByOne() throws Exception {
    RegisteredMemory source = ranks.filled(0, 64, 1);
    RegisteredMemory target = ranks.memory(0, 64);
    Connection link = ranks.connect(0, 0, 5, RdmaOptions.DEFAULT).get(0);
    link.write(target, 0, source, 0, 64);
    get(link.flush(IbRanks.LIMIT));
    assertThat(bytes(target, 0, 64)).isEqualTo(bytes(source, 0, 64));

    RegisteredMemory other = ranks.memory(0, 64);
    Endpoint end = ranks.endpoint(0, 0, 6, RdmaOptions.DEFAULT);
    Connection own = get(end.connect(end.wire(), Deadline.after(IbRanks.LIMIT)));
    own.write(other, 0, source, 0, 64);
    get(own.flush(IbRanks.LIMIT));
    assertThat(bytes(other, 0, 64)).isEqualTo(bytes(source, 0, 64));
    own.close();
    assertThat(own.failure()).isInstanceOf(Aborted.class);
  }

  @Test
  void shouldWriteInBothDirectionsAtOnce() throws Exception {
    List<Connection> ends = ranks.connect(0);
    int size = 2 << 20;
    RegisteredMemory[] sources = {ranks.filled(0, size, 1), ranks.filled(1, size, 2)};
    RegisteredMemory[] targets = {ranks.memory(0, size), ranks.memory(1, size)};
    List<CompletableFuture<Void>> flushes = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      Connection link = ends.get(rank);
      link.write(ranks.seenByPeer(targets[1 - rank]), 0, sources[rank], 0, size);
      flushes.add(link.flush(IbRanks.LIMIT));
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
    int part = 20_000;
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
                  for (int at = start; at < start + part; at += 2500) {
                    link.write(remote, at, source, at, 1000);
                    link.write(remote, at + 1000, source, at + 1000, 1500);
                    link.flush(IbRanks.LIMIT).join();
                    assertThat(bytes(target, at, 2500)).isEqualTo(bytes(source, at, 2500));
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
  void shouldFailPostsWithoutFailingAtOnceWhenPeerLeavesInOrder() throws Exception {
    List<Connection> ends = ranks.connect(0);
    RegisteredMemory source = ranks.filled(0, 64, 1);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    ends.get(0).write(remote, 0, source, 0, 64);
    get(ends.get(0).flush(IbRanks.LIMIT));

    ends.get(1).close();

    Awaitility.await()
        .untilAsserted(
            () ->
                assertThatThrownBy(() -> ends.get(0).beginFlush())
                    .isInstanceOf(TransportFailure.class)
                    .hasMessageContaining("rank 1 has closed its end"));
    assertThat(get(ends.get(1).failed())).isInstanceOf(Aborted.class);
  }

  @Test
  void shouldAllocateNothingForWriteSignalAndPollInSteadyState() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64 << 10);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64 << 10));
    AtomicLong counter = new AtomicLong();
    var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long agent = idOf("fluxccl-ib0-rank0");
    long own = Thread.currentThread().getId();
    long byAgent = 0;
    long bySelf = 0;
    for (int round = 0; round < 10; round++) {
      long agentBefore = threads.getThreadAllocatedBytes(agent);
      long selfBefore = threads.getThreadAllocatedBytes(own);
      for (int i = 0; i < 300; i++) {
        link.write(remote, 0, source, 0, 8);
        link.write(remote, 0, source, 0, 4096);
        link.updateAndSync(remote, 0, counter, i);
      }
      long ticket = link.beginFlush();
      while (link.flushedTicket() < ticket && link.failure() == null) {
        Thread.onSpinWait();
      }
      bySelf = threads.getThreadAllocatedBytes(own) - selfBefore;
      byAgent = threads.getThreadAllocatedBytes(agent) - agentBefore;
    }
    // What the last 900 operations cost; the bean itself takes a few bytes.
    assertThat(bySelf).isLessThan(900);
    assertThat(byAgent).isLessThan(900);
  }

  private static long idOf(String name) {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals(name))
        .findFirst()
        .orElseThrow()
        .getId();
  }
}
