// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@RequiresNativeLibrary
@Timeout(120)
class NetFailureTest {
  @TempDir private static Path folder;

  private static NetRanks open(String... faults) throws Exception {
    return new NetRanks(
        new NetChoice(null, TestNet.library(folder, 11, faults).toString(), null, false));
  }

  @Test
  void shouldFailOnlyThatConnectionWhenWriteIsOutOfBounds() throws Exception {
    try (NetRanks ranks = open()) {
      RegisteredMemory owned = ranks.memory(1, 64);
      // A writer that lies to itself about the size, as a broken or hostile peer would.
      byte[] lie = owned.handle(Transport.NET).wire();
      lie[16] = 0;
      lie[18] = 1;
      assertRefused(ranks, ranks.seenByPeer(owned, lie, 1 << 16), 1024, "outside the 64 bytes");
    }
  }

  @Test
  void shouldFailOnlyThatConnectionWhenMemoryIsUnknownOrWasDeregistered() throws Exception {
    try (NetRanks ranks = open()) {
      RegisteredMemory owned = ranks.memory(1, 64);
      byte[] wire = owned.handle(Transport.NET).wire();
      wire[12] ^= 1;
      assertRefused(ranks, ranks.seenByPeer(owned, wire, 64), 0, "not, or no longer, registered");
      RegisteredMemory remote = ranks.seenByPeer(owned);
      owned.close();
      assertRefused(ranks, remote, 0, "not, or no longer, registered");
    }
  }

  private static void assertRefused(
      NetRanks ranks, RegisteredMemory remote, long offset, String reason) throws Exception {
    RegisteredMemory source = ranks.memory(0, 1 << 20);
    for (boolean update : new boolean[] {false, true}) {
      List<Connection> bad = ranks.connect(update ? 3 : 1);
      Connection good = ranks.connect(update ? 4 : 2).get(0);
      if (update) {
        bad.get(0).updateAndSync(remote, offset, new AtomicLong(), 1);
      } else {
        bad.get(0).write(remote, offset, source, 0, 64);
      }

      FluxCclException failure = get(bad.get(0).failed());

      assertThat(failure).isInstanceOf(TransportFailure.class).hasMessageContaining(reason);
      assertThat(failure.rank()).isEqualTo(1);
      assertThat(bad.get(0).failure()).isSameAs(failure);
      assertThatThrownBy(() -> bad.get(0).write(remote, 0, source, 0, 8)).isSameAs(failure);
      assertThat(bad.get(0).flush(LIMIT)).isCompletedExceptionally();
      assertThat(get(bad.get(1).failed()).rank()).isZero();
      RegisteredMemory target = ranks.memory(1, 64);
      good.write(ranks.seenByPeer(target), 0, source, 0, 64);
      get(good.flush(LIMIT));
      good.close();
      Awaitility.await().atMost(LIMIT).until(() -> ranks.context(0).openConnections() == 0);
    }
  }

  @Test
  void shouldWriteNothingMoreWhenMemoryIsDeregisteredDuringAWrite() throws Exception {
    int size = 64 << 20;
    try (NetRanks ranks = open()) {
      RegisteredMemory big = ranks.memory(0, size);
      for (int round = 0; round < 5; round++) {
        Connection link = ranks.connect(round).get(0);
        DeviceBuffer buffer = ranks.allocate(1, size);
        RegisteredMemory owned = ranks.register(1, buffer);
        link.write(ranks.seenByPeer(owned), 0, big, 0, size);
        owned.close();
        // Unmapped at once: a single byte placed after this would end the process.
        buffer.close();
        assertThat(get(link.failed()).rank()).isEqualTo(1);
      }
    }
  }

  @Test
  void shouldNameRankAndOperationWhenThePluginFailsInTheMiddle() throws Exception {
    try (NetRanks ranks = open("FAIL_AFTER=40", "FAIL_CODE=6")) {
      RegisteredMemory source = ranks.memory(0, 64 << 20);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64 << 20));
      Connection link = ranks.connect(0).get(0);
      link.write(remote, 0, source, 0, 64 << 20).write(remote, 0, source, 0, 64 << 20);
      CompletableFuture<Void> flush = link.flush(LIMIT);
      FluxCclException failure = get(link.failed());
      assertThat(failure)
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("the NET connection of rank 0 to rank 1 (tag 0)")
          .hasMessageContaining("remote error");
      assertThat(failure.rank()).isEqualTo(1);
      assertThatThrownBy(() -> get(flush)).isInstanceOf(ExecutionException.class).hasCause(failure);
      assertThatThrownBy(link::beginFlush).isSameAs(failure);
    }
  }

  @Test
  void shouldFailIfThePluginReportsNoSizes() throws Exception {
    try (NetRanks ranks = open("NO_SIZES=1")) {
      Endpoint a = ranks.endpoint(0, 1, 0);
      Endpoint b = ranks.endpoint(1, 0, 0);
      // The end that notices first disconnects; the other then waits for it until its deadline.
      Deadline deadline = Deadline.after(Duration.ofSeconds(2));
      CompletableFuture<Connection> toB = a.connect(b.wire(), deadline);
      CompletableFuture<Connection> toA = b.connect(a.wire(), deadline);
      assertThatThrownBy(() -> get(toB)).hasCauseInstanceOf(FluxCclException.class);
      assertThatThrownBy(() -> get(toA)).hasCauseInstanceOf(FluxCclException.class);
    }
  }

  @Test
  void shouldNameRankWhenAnIdlePeerBreaksOff() throws Exception {
    try (NetRanks ranks = open()) {
      List<Connection> ends = ranks.connect(0);
      ranks.context(1).agent().execute(() -> ((NetConnection) ends.get(1)).breakOff());
      FluxCclException failure = get(ends.get(0).failed());
      assertThat(failure).isInstanceOf(TransportFailure.class).hasMessageContaining("rank 1");
      assertThat(failure.rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldEndFlushesWhenConnectionIsClosed() throws Exception {
    try (NetRanks ranks = open()) {
      Connection link = ranks.connect(0).get(0);
      CountDownLatch release = NetConnectionContract.block(ranks.context(1));
      CompletableFuture<Void> flush = link.flush(LIMIT);
      link.close();
      link.close();
      assertThatThrownBy(() -> get(flush)).hasCauseInstanceOf(Aborted.class);
      assertThat(get(link.failed())).isInstanceOf(Aborted.class);
      release.countDown();
    }
  }

  @Test
  void shouldTimeOutNamingRankWhenPeerDoesNotConnect() throws Exception {
    try (NetRanks ranks = open()) {
      Endpoint a = ranks.endpoint(0, 1, 7);
      Endpoint b = ranks.endpoint(1, 0, 7);
      CompletableFuture<Connection> toB =
          a.connect(b.wire(), Deadline.after(Duration.ofMillis(200)));
      assertThatThrownBy(() -> get(toB))
          .hasCauseInstanceOf(io.fluxccl.Timeout.class)
          .hasMessageContaining("tag 7")
          .hasMessageContaining("rank 1");
      b.close();
    }
  }

  @Test
  void shouldRefuseAPeerWithoutItsToken() throws Exception {
    try (NetRanks ranks = open()) {
      Endpoint a = ranks.endpoint(0, 1, 0);
      Endpoint b = ranks.endpoint(1, 0, 0);
      byte[] wire = b.wire();
      wire[28 + 5] ^= 1;
      // Depending on the order of the two ends, this end connects and then fails, or waits until
      // its deadline.
      CompletableFuture<Connection> toB = a.connect(wire, Deadline.after(Duration.ofSeconds(2)));
      CompletableFuture<Connection> toA = b.connect(a.wire(), Deadline.after(LIMIT));
      assertThatThrownBy(() -> get(toA))
          .hasCauseInstanceOf(TransportFailure.class)
          .hasMessageContaining("without its token");
      CompletableFuture<FluxCclException> ended =
          toB.thenCompose(Connection::failed).exceptionally(FluxCclException::from);
      assertThat(get(ended).rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldRefuseAPeerOverAnotherNetworkOrWithAMalformedEnd() throws Exception {
    try (NetRanks ranks = open()) {
      Endpoint a = ranks.endpoint(0, 1, 0);
      EndpointWire peer = EndpointWire.decode(ranks.endpoint(1, 0, 0).wire(), 1);
      EndpointWire other =
          new EndpointWire("ofi", 1, 0, peer.maxBytes(), false, peer.token(), peer.handles());
      assertThatThrownBy(() -> get(a.connect(other.encode(), Deadline.after(LIMIT))))
          .hasCauseInstanceOf(TransportFailure.class)
          .hasMessageContaining("over the network ofi");
      byte[] wire = peer.encode();
      for (int length = 0; length < wire.length; length += 7) {
        byte[] cut = java.util.Arrays.copyOf(wire, length);
        assertThatThrownBy(() -> EndpointWire.decode(cut, 1)).isInstanceOf(TransportFailure.class);
      }
    }
  }

  @Test
  void shouldRefuseMalformedMemoryHandles() throws Exception {
    try (NetRanks ranks = open()) {
      RegisteredMemory owned = ranks.memory(1, 64);
      byte[] wire = owned.handle(Transport.NET).wire();
      for (int place : new int[] {0, 4, 6, 16, 20}) {
        byte[] wrong = wire.clone();
        wrong[place] ^= 0x55;
        assertThatThrownBy(() -> ranks.seenByPeer(owned, wrong, 64))
            .isInstanceOf(TransportFailure.class)
            .hasMessageContaining("rank 1");
      }
      byte[] cut = java.util.Arrays.copyOf(wire, wire.length - 1);
      assertThatThrownBy(() -> ranks.seenByPeer(owned, cut, 64))
          .isInstanceOf(TransportFailure.class);
    }
  }

  @Test
  void shouldServeAnotherConnectionAfterOneFailed() throws Exception {
    try (NetRanks ranks = open()) {
      List<Connection> ends = ranks.connect(0);
      RegisteredMemory source = ranks.filled(0, 100_000, 4);
      RegisteredMemory target = ranks.memory(1, 100_000);
      ranks.context(1).agent().execute(() -> ((NetConnection) ends.get(1)).breakOff());
      get(ends.get(0).failed());
      Connection next = ranks.connect(1).get(0);
      next.write(ranks.seenByPeer(target), 0, source, 0, 100_000);
      get(next.flush(LIMIT));
      assertThat(Contents.get(target, 0, 100_000)).isEqualTo(Contents.get(source, 0, 100_000));
    }
  }

  @Test
  void shouldRefuseMemoryAndUseAfterClose() throws Exception {
    NetRanks ranks = open();
    NetContext context = ranks.context(0);
    ranks.close();
    assertThatThrownBy(() -> ranks.endpoint(0, 1, 0))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("closed");
    assertThat(context.openConnections()).isZero();
  }
}
