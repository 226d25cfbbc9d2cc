package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.netty.channel.EventLoop;
import io.netty.util.ResourceLeakDetector;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Run by epoll and by NIO, for memory that sockets reach and for memory that they can't. */
@Timeout(60)
abstract class EthernetFailureContract {
  private final Supplier<Ranks> opener;
  private Ranks ranks;
  private RegisteredMemory source;

  EthernetFailureContract(Supplier<Ranks> opener) {
    this.opener = opener;
  }

  @BeforeAll
  static void watchForLeaks() {
    ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.PARANOID);
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

      FluxCclException failure = Ranks.get(bad.get(0).failed());

      assertThat(failure).isInstanceOf(TransportFailure.class).hasMessageContaining(reason);
      assertThat(failure.rank()).isEqualTo(1);
      assertThat(bad.get(0).failure()).isSameAs(failure);
      assertThatThrownBy(() -> bad.get(0).write(remote, 0, source, 0, 8)).isSameAs(failure);
      assertThat(bad.get(0).flush(Ranks.LIMIT)).isCompletedExceptionally();
      assertThat(Ranks.get(bad.get(1).failed()).rank()).isZero();
      RegisteredMemory target = ranks.memory(1, 64);
      good.write(ranks.seenByPeer(target), 0, source, 0, 64);
      Ranks.get(good.flush(Ranks.LIMIT));
      Awaitility.await().until(() -> ranks.context(1).openSockets() == 2 * (update ? 2 : 1) + 1);
    }
  }

  @Test
  void shouldWriteNothingMoreWhenMemoryIsDeregisteredDuringAWrite() throws Exception {
    int size = 64 << 20;
    RegisteredMemory big = ranks.memory(0, size);
    for (int round = 0; round < 5; round++) {
      Connection link = ranks.connect(round).get(0);
      DeviceBuffer buffer = ranks.devices.get(1).allocate(size);
      RegisteredMemory owned = ranks.register(1, buffer);
      link.write(ranks.seenByPeer(owned), 0, big, 0, size);
      owned.close();
      // Unmapped at once: a single byte placed after this would end the process.
      buffer.close();
      assertThat(Ranks.get(link.failed()).rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldNameRankWhenPeerDiesInTheMiddleOfAWrite() throws Exception {
    int size = 128 << 20;
    RegisteredMemory big = ranks.memory(0, size);
    RegisteredMemory owned = ranks.memory(1, size);
    List<Connection> ends = ranks.connect(0);
    ends.get(0).write(ranks.seenByPeer(owned), 0, big, 0, size);
    CompletableFuture<Void> flush = ends.get(0).flush(Ranks.LIMIT);

    ranks.context(1).sever();

    FluxCclException failure = Ranks.get(ends.get(0).failed());
    assertThat(failure).isInstanceOf(TransportFailure.class);
    assertThat(failure.rank()).isEqualTo(1);
    assertThatThrownBy(() -> Ranks.get(flush))
        .isInstanceOf(ExecutionException.class)
        .hasCause(failure);
    assertThatThrownBy(() -> ends.get(0).beginFlush()).isSameAs(failure);
  }

  @Test
  void shouldNameRankWhenIdlePeerDies() throws Exception {
    List<Connection> ends = ranks.connect(0);
    ranks.context(1).sever();
    FluxCclException failure = Ranks.get(ends.get(0).failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("without a goodbye");
    assertThat(failure.rank()).isEqualTo(1);
  }

  @Test
  void shouldTimeOutNamingRankWhenPeerDoesNotAnswerAFlush() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    CountDownLatch release = block(ranks.context(1).loop());
    try {
      link.write(remote, 0, source, 0, 64);
      CompletableFuture<Void> flush = link.flush(Duration.ofMillis(100));
      assertThatThrownBy(() -> Ranks.get(flush))
          .hasCauseInstanceOf(io.fluxccl.Timeout.class)
          .hasMessageContaining("flush")
          .hasMessageContaining("rank 1")
          .cause()
          .extracting("rank")
          .isEqualTo(1);
      assertThat(link.failure()).isNull();
      for (int i = 0; i < 100; i++) {
        link.flush(Duration.ofSeconds(10)).cancel(true);
      }
      EthernetConnection connection = (EthernetConnection) link;
      Awaitility.await().until(() -> onLoop(ranks.context(0), connection::waiting) == 0);
    } finally {
      release.countDown();
    }
    Ranks.get(link.flush(Ranks.LIMIT));
  }

  @Test
  void shouldEndFlushesWhenConnectionIsClosed() throws Exception {
    Connection link = ranks.connect(0).get(0);
    CountDownLatch release = block(ranks.context(1).loop());
    CompletableFuture<Void> flush = link.flush(Ranks.LIMIT);
    link.close();
    link.close();
    assertThatThrownBy(() -> Ranks.get(flush)).hasCauseInstanceOf(Aborted.class);
    assertThat(Ranks.get(link.failed())).isInstanceOf(Aborted.class);
    release.countDown();
  }

  @Test
  void shouldReturnEveryWindowWhenConnectionsFail() throws Exception {
    RegisteredMemory big = ranks.memory(0, 32 << 20);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 32 << 20));
    Connection link = ranks.connect(0).get(0);
    CountDownLatch release = block(ranks.context(1).loop());
    link.write(remote, 0, big, 0, 32 << 20);
    Awaitility.await().until(() -> onLoop(ranks.context(0), ranks.context(0).pool()::lent) > 0);
    link.close();
    Awaitility.await().until(() -> onLoop(ranks.context(0), ranks.context(0).pool()::lent) == 0);
    release.countDown();
  }

  /** Holds an event loop up until the latch is counted down. */
  static CountDownLatch block(EventLoop loop) throws InterruptedException {
    CountDownLatch blocked = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    loop.execute(
        () -> {
          blocked.countDown();
          try {
            release.await(30, TimeUnit.SECONDS);
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
        });
    assertThat(blocked.await(60, TimeUnit.SECONDS)).isTrue();
    return release;
  }

  static <T> T onLoop(EthernetContext context, java.util.concurrent.Callable<T> question)
      throws Exception {
    return context.loop().submit(question).get(60, TimeUnit.SECONDS);
  }
}
