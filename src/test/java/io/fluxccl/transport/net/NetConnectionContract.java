// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Tests of connections over each network, their failures, and what these leave of the others. */
@Timeout(120)
abstract class NetConnectionContract extends ConnectionContract<NetRanks> {
  @TempDir private static Path folder;

  private final Network.Opener opener;

  NetConnectionContract(Network.Opener opener) {
    this.opener = opener;
  }

  @Override
  protected NetRanks openRanks() throws Exception {
    return opener.open(folder);
  }

  /** Around what a message, a slot of the staging ring and the ring hold. */
  @Override
  protected int[] sizes() {
    int slot = StagingSlots.SLOT_BYTES;
    int ring = StagingSlots.MAX_SLOTS * slot;
    IntStream around =
        IntStream.of(2048, 4096, slot, ring).flatMap(size -> IntStream.range(size - 1, size + 2));
    IntStream others = IntStream.of(1, 7, 900, ring - 33, ring - 32, 4_206_649, 3 * ring + 5);
    return IntStream.concat(around, others).toArray();
  }

  /** More than may wait. */
  @Override
  protected int manyWrites() {
    return Rounds.of(6_000, 70_000);
  }

  @Override
  protected int longWrite() {
    return 32 << 20;
  }

  @Override
  protected int signalRounds() {
    return Rounds.of(500, 2000);
  }

  /** On a rail, and within a message. */
  @Override
  protected int[] signalledLongs() {
    return new int[] {32 << 10, 1024, 1, 1};
  }

  @Test
  void shouldKeepOrderWhenPostsOutrunTheQueue() throws Exception {
    Transfer transfer = ranks.transfer(0, 16384);
    AtomicLong counter = new AtomicLong();
    CountDownLatch release = ranks.block(0);
    for (int i = 1; i <= 20_000; i++) {
      transfer.signal(0, counter, i);
      if (i % 100 == 0) {
        transfer.write(8192, 0, 8192);
      }
    }
    release.countDown();
    transfer.flush();
    assertThat(Contents.getLong(transfer.target(), 0)).isEqualTo(20_000);
  }

  @Tag("alone")
  @Test
  void shouldAllocateNothingWhenPostingInSteadyState() throws Exception {
    long poster = Thread.currentThread().getId();
    // The streams of the host device allocate what is enqueued.
    boolean streams =
        ranks.context(0).staging() != null && ranks.device(0).kind() == DeviceKind.HOST;
    long[] ids = streams ? new long[] {poster} : new long[] {poster, agentOf(0), agentOf(1)};
    // Short rounds: a listener that is asked now and then for new links allocates.
    assertThat(leastAllocated(1, 10, ids))
        .as("bytes for 31 posts, by the poster and both agents")
        .isZero();
  }

  private long agentOf(int rank) throws Exception {
    return ranks.onAgent(rank, () -> Thread.currentThread().getId());
  }

  @Test
  void shouldFailOnlyThatConnectionWhenWriteIsOutOfBounds() throws Exception {
    RegisteredMemory owned = ranks.memory(1, 64);
    // A writer that lies to itself about the size, as a broken or hostile peer would.
    byte[] lie = ranks.wire(owned);
    lie[16] = 0;
    lie[18] = 1;
    assertRefused(ranks.seenByPeer(owned, lie, 1 << 16), 1024, "outside the 64 bytes");
  }

  @Test
  void shouldFailOnlyThatConnectionWhenMemoryIsUnknown() throws Exception {
    RegisteredMemory owned = ranks.memory(1, 64);
    byte[] wire = ranks.wire(owned);
    wire[12] ^= 1;
    assertRefused(ranks.seenByPeer(owned, wire, 64), 0, "not, or no longer, registered");
  }

  @Test
  void shouldFailOnlyThatConnectionWhenMemoryWasDeregistered() throws Exception {
    RegisteredMemory owned = ranks.memory(1, 64);
    RegisteredMemory remote = ranks.seenByPeer(owned);
    owned.close();
    assertRefused(remote, 0, "not, or no longer, registered");
  }

  private void assertRefused(RegisteredMemory remote, long offset, String reason) throws Exception {
    RegisteredMemory source = ranks.memory(0, 64);
    for (boolean update : new boolean[] {false, true}) {
      List<Connection> ends = ranks.connect(update ? 3 : 1);
      Connection bad = ends.get(0);
      Transfer good = ranks.transfer(update ? 4 : 2, 64);
      if (update) {
        bad.updateAndSync(remote, offset, new AtomicLong(), 1);
      } else {
        bad.write(remote, offset, source, 0, 64);
      }
      FluxCclException failure = get(bad.failed());
      assertFailureOf(1, TransportFailure.class, failure, reason);
      assertThat(bad.failure()).isSameAs(failure);
      assertThatThrownBy(() -> bad.write(remote, 0, source, 0, 8)).isSameAs(failure);
      assertThat(bad.flush(LIMIT)).isCompletedExceptionally();
      assertThat(get(ends.get(1).failed()).rank()).isZero();
      good.check();
      ranks.awaitOpen(1, update ? 2 : 1);
    }
  }

  @Test
  void shouldWriteNothingMoreWhenMemoryIsDeregisteredDuringAWrite() throws Exception {
    int size = 64 << 20;
    RegisteredMemory big = ranks.memory(0, size);
    for (int round = 0; round < Rounds.of(2, 5); round++) {
      Connection link = ranks.connect(round).get(0);
      DeviceBuffer buffer = ranks.device(1).allocate(size);
      RegisteredMemory owned = ranks.register(1, buffer);
      link.write(ranks.seenByPeer(owned), 0, big, 0, size);
      owned.close();
      // Unmapped at once: a single byte placed after this would end the process.
      buffer.close();
      assertThat(get(link.failed()).rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldNameRankWhenPeerDiesInTheMiddleOfAWrite() throws Exception {
    Transfer transfer = ranks.transfer(0, 128 << 20);
    CountDownLatch release = ranks.block(1); // or it may have received all when it dies
    CompletableFuture<Void> flush = transfer.write().flushing();
    ranks.sever(1);
    release.countDown();
    FluxCclException failure = get(transfer.link().failed());
    assertFailureOf(1, TransportFailure.class, failure);
    assertThat(failureOf(flush)).isSameAs(failure);
    assertThatThrownBy(() -> transfer.link().beginFlush()).isSameAs(failure);
  }

  @Test
  void shouldNameRankWhenIdlePeerDies() throws Exception {
    Connection link = ranks.connect(0).get(0);
    get(link.flush(LIMIT));
    ranks.sever(1);
    FluxCclException failure = get(link.failed());
    assertFailureOf(
        1,
        TransportFailure.class,
        failure,
        ranks.transport() == Transport.ETHERNET ? "the peer has ended" : "rank 1");
  }

  @Test
  void shouldTimeOutNamingRankWhenPeerDoesNotAnswerAFlush() throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    Connection link = transfer.link();
    CountDownLatch release = ranks.block(1);
    try {
      transfer.write();
      FluxCclException failure = failureOf(link.flush(Duration.ofMillis(100)));
      assertFailureOf(1, io.fluxccl.Timeout.class, failure, "flush", "rank 1");
      assertThat(link.failure()).isNull();
      link.flush(Duration.ofSeconds(10)).cancel(true);
    } finally {
      release.countDown();
    }
    transfer.flush();
  }

  @Test
  void shouldEndFlushesWhenConnectionIsClosed() throws Exception {
    Connection link = ranks.connect(0).get(0);
    CountDownLatch release = ranks.block(1);
    CompletableFuture<Void> flush = link.flush(LIMIT);
    link.close();
    assertThat(failureOf(flush)).isInstanceOf(Aborted.class);
    assertThat(get(link.failed())).isInstanceOf(Aborted.class);
    release.countDown();
  }
}
