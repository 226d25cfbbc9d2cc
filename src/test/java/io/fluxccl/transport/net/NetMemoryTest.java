// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.TransportFailure;
import io.fluxccl.transport.CancelledHandOut;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.WatchedBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Memory is released once, and only once no call of the network uses it, even if calls fail. */
@Timeout(120)
class NetMemoryTest {
  /** Larger than a control message, and unlike any other size. */
  private static final int SIZE = 100_000;

  private static final int RAILS = 2;

  private final FaultyNet net = new FaultyNet();
  private final AtomicInteger registrationsAtRelease = new AtomicInteger(-1);
  private final AtomicInteger endsAtRelease = new AtomicInteger(-1);
  private final NetRanks ranks = new NetRanks(net.plugin, RAILS);
  private final WatchedBuffer buffer =
      new WatchedBuffer(ranks.allocate(0, SIZE), this::noteRelease);
  private final RegisteredMemory memory = ranks.register(0, buffer.buffer());

  /** Of another size, so that its own registrations don't count. */
  private final RegisteredMemory target = ranks.memory(1, 2 * SIZE);

  private final RegisteredMemory remote = ranks.seenByPeer(target);

  private void noteRelease() {
    registrationsAtRelease.set(net.registrations(SIZE));
    endsAtRelease.set(net.openEnds());
  }

  @AfterEach
  void close() {
    ranks.close();
    assertThat(net.closed).isTrue();
  }

  private static void awaitReleased(WatchedBuffer released) {
    await()
        .untilAsserted(
            () -> assertThat(released.released()).isEqualTo(released.retained()).isPositive());
  }

  private void assertReleasedAfter(int registrations) {
    awaitReleased(buffer);
    assertThat(registrationsAtRelease).hasValue(registrations);
  }

  private void assertInUse() throws Exception {
    ranks.onAgent(0, () -> null);
    assertThat(net.registrations(SIZE)).isEqualTo(1);
    assertThat(buffer.released()).isZero();
  }

  private void assertClosed(Connection link) {
    assertRefused(() -> link.write(remote, 0, memory, 0, 8), "closed");
  }

  private void writeFrom(Connection link) throws Exception {
    link.write(remote, 0, memory, 0, SIZE);
    get(link.flush(LIMIT));
  }

  /** Writes the memory in a send that does not complete. */
  private void beginWrite(Connection link) throws InterruptedException {
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
  }

  @Test
  @Tag("long")
  void shouldNameTheNetworkThatBlocksACloseAndReleaseTheMemoryOnReturn() throws Exception {
    Connection link = ranks.connect(0).get(0);
    writeFrom(link);
    CountDownLatch inCall = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    net.beforeSend =
        size -> {
          inCall.countDown();
          CancelledHandOut.await(release);
        };
    CompletableFuture<Void> flush = link.flush(LIMIT);
    inCall.await();
    assertThrows(
        TransportFailure.class,
        memory::close,
        "closing a NET registration of " + SIZE + " bytes",
        net.plugin.name(),
        "has not returned within 10 s");
    memory.close(); // is closed already, and waits for nothing
    assertThat(net.registrations(SIZE)).isEqualTo(1);
    assertThat(buffer.released()).isZero();
    assertClosed(link);
    net.beforeSend = size -> {};
    release.countDown();
    assertReleasedAfter(0);
    get(flush);
  }

  @Test
  void shouldKeepMemoryUntilItsSendsAreDone() throws Exception {
    Connection link = ranks.connect(0).get(0);
    Contents.fill(memory, 1);
    beginWrite(link);
    CompletableFuture<Void> flush = link.flush(LIMIT);
    byte[] bytes = Contents.get(memory, 0, SIZE);
    memory.close();
    assertInUse();
    assertClosed(link);
    net.unfinishedSize = 0;
    assertReleasedAfter(0);
    get(flush);
    assertThat(Contents.get(target, 0, SIZE)).isEqualTo(bytes);
    assertThat(link.failure()).isNull();
  }

  @Test
  void shouldReleaseMemoryWithSendsUnderWayWhenItsConnectionEnds() throws Exception {
    Connection link = ranks.connect(0).get(0);
    int endsOfOneRank = net.openEnds() / 2;
    beginWrite(link);
    memory.close();
    assertInUse();
    link.close();
    awaitReleased(buffer);
    assertThat(endsAtRelease.get()).isBetween(0, endsOfOneRank);
  }

  @Test
  void shouldForgetMemoryOnAllOtherEndsWhenSomeCannotDeregisterIt() throws Exception {
    RegisteredMemory source = ranks.memory(1, 2 * SIZE);
    RegisteredMemory seen = ranks.seenByPeer(memory);
    for (List<Connection> ends : List.of(ranks.connect(0), ranks.connect(1))) {
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
    assertReleasedAfter(stuck);
    net.stuckSize = 0;
  }

  /** Memory of one message, and of several. */
  @ParameterizedTest
  @ValueSource(ints = {SIZE, 3 << 20})
  void shouldReleaseMemoryThatCannotBeRegisteredForAWrite(int size) throws Exception {
    WatchedBuffer refused = new WatchedBuffer(ranks.allocate(0, size));
    RegisteredMemory source = ranks.register(0, refused.buffer());
    Connection link = ranks.connect(0).get(0);
    net.refusedSize = size;
    link.write(ranks.seenByPeer(ranks.memory(1, size + 8)), 0, source, 0, size);
    assertFailure(TransportFailure.class, get(link.failed()), "the memory can't be registered");
    source.close();
    awaitReleased(refused);
  }

  @Test
  void shouldReleaseMemoryOfALinkThatCannotBeClosed() throws Exception {
    net.closesBadly = true;
    Connection link = ranks.connect(0).get(0);
    writeFrom(link);
    memory.close();
    link.close();
    awaitReleased(buffer);
  }
}
