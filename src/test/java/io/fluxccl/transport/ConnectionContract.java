// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.Rounds;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that each transport between hosts must pass for its connections.
 *
 * @param <R> the ranks of that transport
 */
public abstract class ConnectionContract<R extends ConnectedRanks> {
  protected R ranks;

  protected abstract R openRanks() throws Exception;

  @BeforeEach
  void open() throws Exception {
    ranks = openRanks();
  }

  @AfterEach
  protected void close() throws Exception {
    ranks.close();
  }

  /** Number of signals after which the receiver checks the data. */
  protected int signalRounds() {
    return Rounds.of(1_000, 10_000);
  }

  /** Number of rounds in which two threads flush at once. */
  protected int flushRounds() {
    return Rounds.of(500, 5_000);
  }

  /** Number of longs that are written before a signal; the sizes alternate. */
  protected int[] signalledLongs() {
    return new int[] {1024, 1}; // 8 KiB: beyond what is copied when posted
  }

  /** Bytes of a write that takes a moment. */
  protected int longWrite() {
    return 16 << 20;
  }

  /** More small writes than may be on their way at once. */
  protected int manyWrites() {
    return Rounds.of(20_000, 50_000);
  }

  @Test
  void shouldPlaceBytesInPeersMemoryWhenFlushed() throws Exception {
    Connection link = ranks.connect(3).get(0);
    RegisteredMemory source = ranks.filled(0, 1000, 7);
    RegisteredMemory target = ranks.memory(1, 1000);

    link.write(ranks.seenByPeer(target), 100, source, 5, 900);
    ranks.await(link.flush(ranks.limit()));

    Contents.assertSame(target, 100, source, 5, 900);
    assertThat(Contents.getLong(target, 0)).isZero();
    assertThat(link.remoteRank()).isEqualTo(1);
    assertThat(link.tag()).isEqualTo(3);
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldDoNothingWhenWriteHasNoBytes() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 8);
    link.write(ranks.seenByPeer(ranks.memory(1, 8)), 8, source, 8, 0);
    ranks.await(link.flush(ranks.limit()));
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldPlaceManySmallWritesWhenFlushedOnce() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int count = manyWrites();
    RegisteredMemory source = ranks.filled(0, count * 8, 3);
    RegisteredMemory target = ranks.memory(1, count * 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int i = 0; i < count; i++) {
      link.write(remote, i * 8L, source, i * 8L, 8);
    }
    ranks.await(link.flush(ranks.limit()));
    Contents.assertSame(target, 0, source, 0, count * 8);
  }

  @Test
  void shouldNeverShowSignalBeforeItsData() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int[] sizes = signalledLongs();
    int longs = Arrays.stream(sizes).max().orElseThrow();
    RegisteredMemory source = ranks.memory(0, longs * 8L);
    RegisteredMemory target = ranks.memory(1, longs * 8L + 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    AtomicLong counter = new AtomicLong();
    int rounds = signalRounds();
    for (int round = 1; round <= rounds; round++) {
      int words = sizes[round % sizes.length];
      Contents.putLong(source, 0, round);
      Contents.putLong(source, (words - 1) * 8L, round);
      link.write(remote, 0, source, 0, words * 8L);
      link.updateAndSync(remote, longs * 8L, counter, round);
      long deadline = System.nanoTime() + ranks.limit().toNanos();
      while (Contents.getLong(target, longs * 8L) < round && System.nanoTime() < deadline) {
        Thread.yield();
      }
      assertThat(Contents.getLong(target, 0)).isEqualTo(round);
      assertThat(Contents.getLong(target, (words - 1) * 8L)).isEqualTo(round);
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
    ranks.await(link.flush(ranks.limit()));
    for (int i = 0; i < 1000; i++) {
      assertThat(Contents.getLong(target, i * 8L)).isEqualTo(i + 1);
    }
  }

  @Test
  void shouldConnectRankToItselfByTwoEndsAndByOne() throws Exception {
    RegisteredMemory source = ranks.filled(0, 64, 1);
    RegisteredMemory target = ranks.memory(0, 64);
    Connection link = ranks.connect(0, 0, 5).get(0);
    link.write(target, 0, source, 0, 64);
    ranks.await(link.flush(ranks.limit()));
    Contents.assertSame(target, 0, source, 0, 64);

    RegisteredMemory other = ranks.memory(0, 64);
    Endpoint end = ranks.endpoint(0, 0, 6);
    Connection own = ranks.await(end.connect(end.wire(), Deadline.after(ranks.limit())));
    own.write(other, 0, source, 0, 64);
    ranks.await(own.flush(ranks.limit()));
    Contents.assertSame(other, 0, source, 0, 64);
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
    ranks.await(links.get(2).flush(ranks.limit()));
    Contents.assertSame(target, 0, source, 0, 64);
  }

  @Test
  void shouldWriteInBothDirectionsAtOnce() throws Exception {
    List<Connection> ends = ranks.connect(0);
    int size = longWrite();
    RegisteredMemory[] sources = {ranks.filled(0, size, 1), ranks.filled(1, size, 2)};
    RegisteredMemory[] targets = {ranks.memory(0, size), ranks.memory(1, size)};
    List<CompletableFuture<Void>> flushes = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      Connection link = ends.get(rank);
      link.write(ranks.seenByPeer(targets[1 - rank]), 0, sources[rank], 0, size);
      flushes.add(link.flush(ranks.limit()));
    }
    for (CompletableFuture<Void> flush : flushes) {
      ranks.await(flush);
    }
    Contents.assertSame(targets[1], 0, sources[0], 0, size);
    Contents.assertSame(targets[0], 0, sources[1], 0, size);
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
                    link.flush(ranks.limit()).join();
                    Contents.assertSame(target, at, source, at, 10_000);
                  }
                },
                threads));
      }
      for (CompletableFuture<Void> thread : done) {
        ranks.await(thread);
      }
    } finally {
      threads.shutdownNow();
    }
  }

  /** No flush follows the last two, so a flush that the connection lost is never completed. */
  @Test
  void shouldCompleteBothFlushesIfTwoThreadsFlushAtOnceAndNoFlushFollows() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.filled(0, 16, 9);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 16));
    CyclicBarrier together = new CyclicBarrier(2);
    ExecutorService threads = Executors.newFixedThreadPool(2);
    try {
      List<CompletableFuture<Void>> done = new ArrayList<>();
      for (int thread = 0; thread < 2; thread++) {
        int at = 8 * thread;
        done.add(
            CompletableFuture.runAsync(
                () -> {
                  for (int round = 0; round < flushRounds(); round++) {
                    meet(together);
                    link.write(remote, at, source, at, 8);
                    link.flush(ranks.limit()).join();
                  }
                },
                threads));
      }
      for (CompletableFuture<Void> thread : done) {
        ranks.await(thread);
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private void meet(CyclicBarrier barrier) {
    try {
      barrier.await(ranks.limit().toMillis(), TimeUnit.MILLISECONDS);
    } catch (InterruptedException | BrokenBarrierException | TimeoutException e) {
      throw new CompletionException(e);
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
    Awaitility.await().atMost(ranks.limit()).until(() -> link.flushedTicket() >= second);
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
    ranks.await(ends.get(0).flush(ranks.limit()));

    ends.get(1).close();

    Awaitility.await()
        .atMost(ranks.limit())
        .untilAsserted(
            () ->
                assertThatThrownBy(() -> ends.get(0).beginFlush())
                    .isInstanceOf(TransportFailure.class)
                    .hasMessageContaining("rank 1 has closed its end"));
    assertThat(ranks.await(ends.get(1).failed())).isInstanceOf(Aborted.class);
  }
}
