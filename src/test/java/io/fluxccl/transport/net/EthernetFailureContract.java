// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Run for memory that sockets reach and for memory that they can't. */
@Timeout(60)
abstract class EthernetFailureContract {
  private final Supplier<NetRanks> opener;
  private NetRanks ranks;
  private RegisteredMemory source;

  EthernetFailureContract(Supplier<NetRanks> opener) {
    this.opener = opener;
  }

  @BeforeEach
  void open() {
    ranks = opener.get();
    source = ranks.memory(0, 1 << 20);
  }

  @AfterEach
  void close() throws Exception {
    ranks.close();
  }

  @Test
  void shouldFailOnlyThatConnectionWhenWriteIsOutOfBounds() throws Exception {
    RegisteredMemory owned = ranks.memory(1, 64);
    byte[] wire = owned.handle(Transport.ETHERNET).wire();
    // A writer that lies to itself about the size, as a broken or hostile peer would.
    byte[] lie = wire.clone();
    lie[16] = 0;
    lie[18] = 1;
    assertRefused(ranks.seenByPeer(owned, lie, 1 << 16), 1024, "outside the 64 bytes");
  }

  @Test
  void shouldFailOnlyThatConnectionWhenMemoryIdIsUnknown() throws Exception {
    RegisteredMemory owned = ranks.memory(1, 64);
    byte[] wire = owned.handle(Transport.ETHERNET).wire();
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
    for (boolean update : new boolean[] {false, true}) {
      List<Connection> bad = ranks.connect(update ? 3 : 1);
      Connection good = ranks.connect(update ? 4 : 2).get(0);
      if (update) {
        bad.get(0).updateAndSync(remote, offset, new AtomicLong(), 1);
      } else {
        bad.get(0).write(remote, offset, source, 0, 64);
      }

      FluxCclException failure = NetRanks.get(bad.get(0).failed());

      assertThat(failure).isInstanceOf(TransportFailure.class).hasMessageContaining(reason);
      assertThat(failure.rank()).isEqualTo(1);
      assertThat(bad.get(0).failure()).isSameAs(failure);
      assertThatThrownBy(() -> bad.get(0).write(remote, 0, source, 0, 8)).isSameAs(failure);
      assertThat(bad.get(0).flush(NetRanks.LIMIT)).isCompletedExceptionally();
      assertThat(NetRanks.get(bad.get(1).failed()).rank()).isZero();
      RegisteredMemory target = ranks.memory(1, 64);
      good.write(ranks.seenByPeer(target), 0, source, 0, 64);
      NetRanks.get(good.flush(NetRanks.LIMIT));
      Awaitility.await().until(() -> ranks.context(1).openConnections() == (update ? 2 : 1));
    }
  }

  @Test
  void shouldWriteNothingMoreWhenMemoryIsDeregisteredDuringAWrite() throws Exception {
    int size = 64 << 20;
    RegisteredMemory big = ranks.memory(0, size);
    for (int round = 0; round < Rounds.of(2, 5); round++) {
      Connection link = ranks.connect(round).get(0);
      DeviceBuffer buffer = ranks.devices.get(1).allocate(size);
      RegisteredMemory owned = ranks.register(1, buffer);
      link.write(ranks.seenByPeer(owned), 0, big, 0, size);
      owned.close();
      // Unmapped at once: a single byte placed after this would end the process.
      buffer.close();
      assertThat(NetRanks.get(link.failed()).rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldNameRankWhenPeerDiesInTheMiddleOfAWrite() throws Exception {
    int size = 128 << 20;
    RegisteredMemory big = ranks.memory(0, size);
    RegisteredMemory owned = ranks.memory(1, size);
    List<Connection> ends = ranks.connect(0);
    ends.get(0).write(ranks.seenByPeer(owned), 0, big, 0, size);
    CompletableFuture<Void> flush = ends.get(0).flush(NetRanks.LIMIT);

    ranks.sever(1);

    FluxCclException failure = NetRanks.get(ends.get(0).failed());
    assertThat(failure).isInstanceOf(TransportFailure.class);
    assertThat(failure.rank()).isEqualTo(1);
    assertThatThrownBy(() -> NetRanks.get(flush))
        .isInstanceOf(ExecutionException.class)
        .hasCause(failure);
    assertThatThrownBy(() -> ends.get(0).beginFlush()).isSameAs(failure);
  }

  @Test
  void shouldNameRankWhenIdlePeerDies() throws Exception {
    List<Connection> ends = ranks.connect(0);
    ranks.sever(1);
    FluxCclException failure = NetRanks.get(ends.get(0).failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("the peer has ended");
    assertThat(failure.rank()).isEqualTo(1);
  }

  @Test
  void shouldTimeOutNamingRankWhenPeerDoesNotAnswerAFlush() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    CountDownLatch release = NetConnectionContract.block(ranks.context(1));
    try {
      link.write(remote, 0, source, 0, 64);
      CompletableFuture<Void> flush = link.flush(Duration.ofMillis(100));
      assertThatThrownBy(() -> NetRanks.get(flush))
          .hasCauseInstanceOf(io.fluxccl.Timeout.class)
          .hasMessageContaining("flush")
          .hasMessageContaining("rank 1")
          .cause()
          .extracting("rank")
          .isEqualTo(1);
      assertThat(link.failure()).isNull();
      link.flush(Duration.ofSeconds(10)).cancel(true);
    } finally {
      release.countDown();
    }
    NetRanks.get(link.flush(NetRanks.LIMIT));
  }

  @Test
  void shouldEndFlushesWhenConnectionIsClosed() throws Exception {
    Connection link = ranks.connect(0).get(0);
    CountDownLatch release = NetConnectionContract.block(ranks.context(1));
    CompletableFuture<Void> flush = link.flush(NetRanks.LIMIT);
    link.close();
    link.close();
    assertThatThrownBy(() -> NetRanks.get(flush)).hasCauseInstanceOf(Aborted.class);
    assertThat(NetRanks.get(link.failed())).isInstanceOf(Aborted.class);
    release.countDown();
  }
}
