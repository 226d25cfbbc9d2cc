// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.Aborted;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.HangLimit;
import io.fluxccl.testing.Parallel;
import io.fluxccl.testing.Rounds;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that each transport must pass for its connections.
 *
 * @param <R> the ranks of that transport
 */
public abstract class ConnectionContract<R extends ConnectedRanks> {
  /** The size of the memory that writes of random sizes and offsets fill. */
  private static final int RANDOM_SIZE = 3 << 20;

  protected R ranks;

  protected abstract R openRanks() throws Exception;

  @BeforeEach
  void open() throws Exception {
    ranks = openRanks();
  }

  @AfterEach
  protected void close() throws Exception {
    if (ranks != null) { // after an assumption that does not hold here
      ranks.close();
    }
  }

  /** Sizes of writes that go different ways. */
  protected int[] sizes() {
    return new int[] {1, 900, 4096, 4097};
  }

  /** Number of signals after which the receiver checks the data. */
  protected int signalRounds() {
    return Rounds.of(1_000, 10_000);
  }

  /** Number of rounds in which two threads flush at once. */
  protected int flushRounds() {
    return Rounds.of(500, 5_000);
  }

  /** Number of writes of random sizes in each direction. */
  protected int randomWrites() {
    return Rounds.of(150, 400);
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
  void shouldPlaceExactlyTheWrittenBytesOfEachSize() throws Exception {
    int room = Arrays.stream(sizes()).max().orElseThrow() + 200;
    Transfer transfer = ranks.transfer(3, room);
    byte[] source = Contents.get(transfer.source(), 0, room);
    for (int size : sizes()) {
      byte[] expected = Contents.fill(transfer.target(), size);
      transfer.write(101, 5, size).write(room, room, 0).flush();
      System.arraycopy(source, 5, expected, 101, size);
      byte[] found = Contents.get(transfer.target(), 0, room);
      assertThat(Arrays.equals(found, expected)).as("size=%s", size).isTrue();
    }
    Connection link = transfer.link();
    assertThat(link.transport()).isEqualTo(ranks.transport());
    assertThat(link.remoteRank()).isEqualTo(1);
    assertThat(link.tag()).isEqualTo(3);
    assertThat(transfer.back().tag()).isEqualTo(3);
    assertThat(link.failure()).isNull();
  }

  /**
   * Short writes overtake long ones to the same place if the transport does not keep their order.
   */
  @Test
  void shouldKeepTheOrderOfRandomWritesInBothDirections() throws Exception {
    List<Connection> ends = ranks.connect(0);
    Random random = new Random(Rounds.SEED);
    Transfer[] transfers = new Transfer[2];
    byte[][] sources = new byte[2][];
    byte[][] expected = new byte[2][RANDOM_SIZE];
    for (int rank = 0; rank < 2; rank++) {
      transfers[rank] = ranks.transfer(ends, rank, RANDOM_SIZE);
      sources[rank] = Contents.get(transfers[rank].source(), 0, RANDOM_SIZE);
    }
    for (int i = 0; i < randomWrites(); i++) {
      for (int rank = 0; rank < 2; rank++) {
        int size = 1 + random.nextInt(1 << (1 + random.nextInt(20)));
        int from = random.nextInt(RANDOM_SIZE - size);
        int to = random.nextInt(RANDOM_SIZE - size);
        transfers[rank].write(to, from, size);
        System.arraycopy(sources[rank], from, expected[rank], to, size);
      }
    }
    for (int rank = 0; rank < 2; rank++) {
      transfers[rank].flush();
      byte[] found = Contents.get(transfers[rank].target(), 0, RANDOM_SIZE);
      assertThat(Arrays.equals(found, expected[rank])).as("from rank %s", rank).isTrue();
    }
  }

  @Test
  void shouldPlaceManySmallWritesWhenFlushedOnce() throws Exception {
    assertManySmallWrites(ranks.transfer(0, manyWrites() * 8));
  }

  /** Fills memory by writes of 8 bytes each. */
  protected static void assertManySmallWrites(Transfer transfer) throws Exception {
    for (long at = 0; at < transfer.source().size(); at += 8) {
      transfer.write(at, at, 8);
    }
    transfer.flush();
    transfer.assertWritten();
  }

  @Test
  void shouldNeverShowSignalBeforeItsData() throws Exception {
    int[] sizes = signalledLongs();
    int longs = Arrays.stream(sizes).max().orElseThrow();
    Transfer transfer = ranks.transfer(0, longs * 8 + 8);
    RegisteredMemory target = transfer.target();
    AtomicLong counter = new AtomicLong();
    int rounds = signalRounds();
    for (int round = 1; round <= rounds; round++) {
      int last = (sizes[round % sizes.length] - 1) * 8;
      Contents.putLong(transfer.source(), 0, round);
      Contents.putLong(transfer.source(), last, round);
      transfer.write(0, 0, last + 8).signal(longs * 8L, counter, round);
      long began = HangLimit.start();
      while (Contents.getLong(target, longs * 8L) < round) {
        HangLimit.check(began, "the signal is seen");
        Thread.yield();
      }
      assertThat(Contents.getLong(target, 0)).isEqualTo(round);
      assertThat(Contents.getLong(target, last)).isEqualTo(round);
    }
    assertThat(counter).hasValue(rounds);
  }

  @Test
  void shouldSendEveryValueOfManySignalsInOrder() throws Exception {
    Transfer transfer = ranks.transfer(0, 1000 * 8);
    AtomicLong counter = new AtomicLong();
    for (int i = 0; i < 1000; i++) {
      transfer.signal(i * 8L, counter, i + 1);
    }
    transfer.flush();
    for (int i = 0; i < 1000; i++) {
      assertThat(Contents.getLong(transfer.target(), i * 8L)).isEqualTo(i + 1);
    }
  }

  @Test
  void shouldConnectRankToItselfByTwoEndsAndByOne() throws Exception {
    Endpoint end = ranks.endpoint(0, 0, 6);
    List<Connection> links =
        List.of(
            ranks.connect(0, 0, 5, ranks.config()).get(0),
            get(end.connect(end.wire(), deadline())));
    RegisteredMemory source = ranks.filled(0, 64, 1);
    for (Connection link : links) {
      RegisteredMemory target = ranks.memory(0, 64);
      link.write(target, 0, source, 0, 64);
      get(link.flush(LIMIT));
      Contents.assertSame(target, 0, source, 0, 64);
      link.close();
      link.close();
      assertThat(link.failure()).isInstanceOf(Aborted.class);
      assertThat(get(link.failed())).isSameAs(link.failure());
      assertThatThrownBy(link::beginFlush).isInstanceOf(Aborted.class);
      assertThat(failureOf(link.flush(LIMIT))).isInstanceOf(Aborted.class);
    }
  }

  @Test
  void shouldKeepSeveralConnectionsToOnePeerApart() throws Exception {
    List<Transfer> transfers = new ArrayList<>();
    for (int tag = 0; tag < 4; tag++) {
      transfers.add(ranks.transfer(tag, 64));
    }
    transfers.get(1).link().close();
    transfers.get(2).check();
  }

  @Test
  void shouldWriteInBothDirectionsAtOnce() throws Exception {
    List<Connection> ends = ranks.connect(0);
    Transfer there = ranks.transfer(ends, 0, longWrite());
    Transfer back = ranks.transfer(ends, 1, longWrite());
    there.write();
    back.write();
    there.flush();
    back.flush();
    there.assertWritten();
    back.assertWritten();
  }

  @Test
  void shouldServeFourThreadsThatWriteAndFlushAtOnce() throws Exception {
    int part = 40_000;
    Transfer transfer = ranks.transfer(0, 4 * part);
    inThreads(
        4,
        thread -> {
          for (int at = thread * part; at < (thread + 1) * part; at += 10_000) {
            transfer.write(at, at, 1000).write(at + 1000, at + 1000, 9000).flush();
            transfer.assertWritten(at, at, 10_000);
          }
        });
  }

  /** No flush follows the last two, so a flush that the connection lost is never completed. */
  @Test
  void shouldCompleteBothFlushesIfTwoThreadsFlushAtOnceAndNoFlushFollows() throws Exception {
    Transfer transfer = ranks.transfer(0, 16);
    CyclicBarrier together = new CyclicBarrier(2);
    inThreads(
        2,
        thread -> {
          for (int round = 0; round < flushRounds(); round++) {
            together.await(LIMIT.toMillis(), TimeUnit.MILLISECONDS);
            transfer.write(8L * thread, 8L * thread, 8).flush();
          }
        });
  }

  /** The work of one of several threads. */
  protected interface ThreadTask {
    /** Runs in the thread of this number. */
    void run(int thread) throws Exception;
  }

  /** Runs a task in new threads at once, to its end. */
  protected static void inThreads(int count, ThreadTask task) throws Exception {
    Parallel.forEach(
        LongStream.range(0, count),
        count,
        thread -> {
          task.run((int) thread);
          return null;
        });
  }

  @Test
  void shouldRaiseFlushedTicketWhenPeerHasAll() throws Exception {
    Connection link = ranks.transfer(0, 64).write().link();
    long first = link.beginFlush();
    long second = link.beginFlush();
    assertThat(second > first).isEqualTo(numbersFlushes());
    Awaitility.await().atMost(LIMIT).until(() -> link.flushedTicket() >= second);
  }

  @Test
  void shouldRefuseRangesAndMemoriesThatCannotBe() throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    Connection link = transfer.link();
    RegisteredMemory source = transfer.source();
    RegisteredMemory remote = transfer.remote();
    assertRefused(() -> transfer.write(1, 0, 64));
    assertRefused(() -> transfer.write(0, 1, 64));
    assertRefused(() -> transfer.write(-1, 0, 8));
    assertRefused(() -> transfer.write(0, 0, -1));
    assertRefused(() -> transfer.write(0, 0, Long.MAX_VALUE));
    assertRefused(() -> link.write(source, 0, source, 0, 8), "rank 0");
    assertRefused(() -> link.write(source, 0, remote, 0, 8));
    assertRefused(() -> link.write(remote, 0, remote, 0, 8));
    AtomicLong counter = new AtomicLong(3);
    assertRefused(() -> transfer.signal(4, counter, 5));
    assertRefused(() -> transfer.signal(64, counter, 5));
    assertThat(counter).hasValue(3);
    source.close();
    assertRefused(() -> transfer.write(0, 0, 8));
    assertThat(link.failure()).isNull();
  }

  /** Whether a thread of the transport moves the data, and notices that the other end closes. */
  protected boolean hasAgent() {
    return true;
  }

  /** Whether each flush has a ticket of its own. */
  protected boolean numbersFlushes() {
    return hasAgent();
  }

  @Test
  void shouldFailPostsWithoutFailingAtOnceWhenPeerLeavesInOrder() throws Exception {
    assumeTrue(hasAgent(), "an end does not notice that the other one is closed");
    Transfer transfer = ranks.transfer(0, 64);
    transfer.write().flush();
    transfer.back().close();
    Awaitility.await()
        .atMost(LIMIT)
        .untilAsserted(
            () ->
                assertThatThrownBy(() -> transfer.link().beginFlush())
                    .isInstanceOf(TransportFailure.class)
                    .hasMessageContaining("rank 1 has closed its end"));
    assertThat(get(transfer.back().failed())).isInstanceOf(Aborted.class);
  }

  /**
   * Writes short and long data, and signals, in rounds of which each ends with a flush, until a try
   * allocates fewer bytes than {@code bound}.
   *
   * @return the bytes that the threads have allocated in the best of the tries
   */
  protected final long leastAllocated(long bound, int rounds, long... threads) throws Exception {
    Transfer transfer = ranks.transfer(0, 64 << 10);
    Connection link = transfer.link();
    AtomicLong counter = new AtomicLong();
    long allocated =
        AllocatedBytes.least(
            bound,
            () -> {
              for (int i = 0; i < rounds; i++) {
                transfer.write(0, 0, 8).write(0, 0, 64 << 10).signal(0, counter, i);
              }
              long ticket = link.beginFlush();
              while (link.flushedTicket() < ticket && link.failure() == null) {
                Thread.yield();
              }
            },
            threads);
    assertThat(link.failure()).isNull();
    return allocated;
  }
}
