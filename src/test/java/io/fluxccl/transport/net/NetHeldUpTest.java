// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.WatchedBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Closes registrations of memory while a call of the network delays that. */
@Timeout(120)
class NetHeldUpTest {
  /** Larger than a control message, and unlike any other size. */
  private static final int SIZE = 100_000;

  private static final int RAILS = 2;

  private final FaultyNet net = new FaultyNet();
  private final AtomicInteger registrationsAtRelease = new AtomicInteger(-1);
  private final AtomicInteger endsAtRelease = new AtomicInteger(-1);
  private NetRanks ranks;
  private WatchedBuffer buffer;
  private RegisteredMemory memory;
  private RegisteredMemory remote;

  @BeforeEach
  void open() {
    ranks = new NetRanks(net, RAILS);
    buffer = new WatchedBuffer(ranks.allocate(0, SIZE), this::noteRelease);
    memory = ranks.register(0, buffer);
    // Of another size, so that its own registrations don't count.
    remote = ranks.seenByPeer(ranks.memory(1, 2 * SIZE));
  }

  private void noteRelease() {
    registrationsAtRelease.set(net.registrations(SIZE));
    endsAtRelease.set(net.openEnds());
  }

  @AfterEach
  void close() {
    ranks.close();
    assertThat(net.closed).isTrue();
  }

  private void assertReleasedBehind(int registrations) {
    await().untilAsserted(() -> assertThat(buffer.released()).isEqualTo(buffer.retained()));
    assertThat(registrationsAtRelease).hasValue(registrations);
  }

  /** All that the agent was asked to do has been done. */
  private void awaitAgent() throws Exception {
    CompletableFuture<Void> reached = new CompletableFuture<>();
    ranks.context(0).agent().execute(() -> reached.complete(null));
    get(reached);
  }

  private void writeFrom(Connection link) throws Exception {
    link.write(remote, 0, memory, 0, SIZE);
    get(link.flush(LIMIT));
  }

  @Test
  @Tag("long")
  void shouldNameTheNetworkThatBlocksACloseAndReleaseTheMemoryOnReturn() throws Exception {
    Connection link = ranks.connect(0).get(0);
    writeFrom(link);
    assertThat(net.registrations(SIZE)).isEqualTo(1);
    CountDownLatch inCall = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    net.beforeSend =
        size -> {
          inCall.countDown();
          try {
            release.await();
          } catch (InterruptedException e) {
            throw new IllegalStateException(e);
          }
        };
    CompletableFuture<Void> flush = link.flush(LIMIT);
    inCall.await();

    assertThatThrownBy(memory::close)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("closing a NET registration of " + SIZE + " bytes")
        .hasMessageContaining(net.name())
        .hasMessageContaining("has not returned within 10 s");
    memory.close(); // is closed already, and waits for nothing

    assertThat(net.registrations(SIZE)).isEqualTo(1);
    assertThat(buffer.released()).isZero();
    assertThatThrownBy(() -> link.write(remote, 0, memory, 0, SIZE))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("closed");
    net.beforeSend = null;
    release.countDown();
    assertReleasedBehind(0);
    get(flush);
  }

  @Test
  void shouldKeepMemoryUntilItsSendsAreDone() throws Exception {
    Connection link = ranks.connect(0).get(0);
    byte[] bytes = Contents.fill(memory, 1);
    net.unfinishedSize = SIZE;
    CountDownLatch sending = new CountDownLatch(1);
    net.beforeSend =
        size -> {
          if (size == SIZE) {
            sending.countDown();
          }
        };
    RegisteredMemory target = ranks.memory(1, SIZE + 8);
    link.write(ranks.seenByPeer(target), 0, memory, 0, SIZE);
    CompletableFuture<Void> flush = link.flush(LIMIT);
    sending.await();

    memory.close();

    awaitAgent();
    assertThat(buffer.released()).isZero();
    assertThat(net.registrations(SIZE)).isEqualTo(1);
    assertThatThrownBy(() -> link.write(remote, 0, memory, 0, 8))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("closed");
    net.unfinishedSize = 0;
    assertReleasedBehind(0);
    get(flush);
    assertThat(Contents.get(target, 0, SIZE)).isEqualTo(bytes);
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldReleaseMemoryWithSendsUnderWayWhenItsConnectionEnds() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int endsOfOneRank = net.openEnds() / 2;
    net.unfinishedSize = SIZE;
    CountDownLatch sending = new CountDownLatch(1);
    net.beforeSend =
        size -> {
          if (size == SIZE) {
            sending.countDown();
          }
        };
    link.write(remote, 0, memory, 0, SIZE);
    sending.await();
    memory.close();
    awaitAgent();
    assertThat(buffer.released()).isZero();

    link.close();

    await().untilAsserted(() -> assertThat(buffer.released()).isEqualTo(buffer.retained()));
    assertThat(endsAtRelease.get()).isBetween(0, endsOfOneRank);
  }

  @Test
  void shouldForgetMemoryOnAllOtherEndsWhenSomeCannotDeregisterIt() throws Exception {
    List<Connection> first = ranks.connect(0);
    List<Connection> second = ranks.connect(1);
    RegisteredMemory source = ranks.memory(1, 2 * SIZE);
    RegisteredMemory seen = ranks.seenByPeer(memory);
    for (List<Connection> ends : List.of(first, second)) {
      for (int rail = 0; rail < RAILS; rail++) {
        writeFrom(ends.get(0));
        ends.get(1).write(seen, 0, source, 0, SIZE);
        get(ends.get(1).flush(LIMIT));
      }
    }
    assertThat(net.registrations(SIZE)).as("one to send and one to receive").isEqualTo(4 * RAILS);
    // Of one connection both that send, and the first that receives.
    int stuck = RAILS + 1;
    net.stuckAtMost.set(stuck);
    net.stuckSize = SIZE;

    memory.close();

    assertReleasedBehind(stuck);
    net.stuckSize = 0;
  }
}
