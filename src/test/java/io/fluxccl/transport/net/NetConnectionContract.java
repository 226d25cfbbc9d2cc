// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Tests of connections over each plugin. */
@Timeout(120)
abstract class NetConnectionContract extends ConnectionContract<NetRanks> {
  @TempDir private static Path folder;

  /** Two ranks over the plugin, whose library may be built in the folder. */
  abstract NetRanks open(Path folder) throws Exception;

  @Override
  protected NetRanks openRanks() throws Exception {
    return open(folder);
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
  void shouldPlaceBytesOfAllSizesInPeersMemoryWhenFlushed() throws Exception {
    Connection link = ranks.connect(3).get(0);
    RegisteredMemory source = ranks.filled(0, 5 << 20, 7);
    RegisteredMemory target = ranks.memory(1, 5 << 20);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int size : new int[] {1, 900, 4096, 4097, 1 << 20, (4 << 20) + 12345}) {
      target.buffer().upload(0, new byte[5 << 20]);
      link.write(remote, 100, source, 5, size);
      get(link.flush(LIMIT));
      assertThat(Contents.get(target, 100, size)).isEqualTo(Contents.get(source, 5, size));
      assertThat(Contents.get(target, 0, 100)).containsOnly(0);
      assertThat(Contents.get(target, 100 + size, 50)).containsOnly(0);
    }
    assertThat(link.transport()).hasToString(ranks.transport().name());
    assertThat(link.remoteRank()).isEqualTo(1);
    assertThat(link.tag()).isEqualTo(3);
    assertThat(link.failure()).isNull();
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
      byte[] expected = Contents.get(source, (count - 1) * size, size);
      System.arraycopy(Contents.get(source, count - 1, 8), 0, expected, 100, 8);
      assertThat(Contents.get(target, 0, size)).isEqualTo(expected);
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
    assertThat(Contents.getLong(target, 0)).isEqualTo(20_000);
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

  @Tag("alone")
  @Test
  void shouldAllocateNothingWhenPostingInSteadyState() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64 << 10);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64 << 10));
    AtomicLong counter = new AtomicLong();
    long poster = Thread.currentThread().getId();
    // The streams of the host device allocate what is enqueued.
    boolean streams =
        ranks.context(0).staging() != null && ranks.devices.get(0).kind() == DeviceKind.HOST;
    long[] ids = streams ? new long[] {poster} : new long[] {poster, agentOf(0), agentOf(1)};
    // Short rounds: a listener that is asked now and then for new links allocates.
    long allocated =
        AllocatedBytes.least(
            600,
            () -> {
              for (int i = 0; i < 10; i++) {
                link.write(remote, 0, source, 0, 8);
                link.write(remote, 0, source, 0, 64 << 10);
                link.updateAndSync(remote, 0, counter, i);
              }
              long ticket = link.beginFlush();
              while (link.flushedTicket() < ticket && link.failure() == null) {
                Thread.yield();
              }
            },
            ids);
    assertThat(link.failure()).isNull();
    assertThat(allocated).as("bytes for 31 posts, by who posts and both agents").isZero();
  }

  private long agentOf(int rank) throws Exception {
    CompletableFuture<Long> id = new CompletableFuture<>();
    ranks.context(rank).agent().execute(() -> id.complete(Thread.currentThread().getId()));
    return get(id);
  }

  @Test
  void shouldHaveNoOpenConnectionsAfterClose() throws Exception {
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
