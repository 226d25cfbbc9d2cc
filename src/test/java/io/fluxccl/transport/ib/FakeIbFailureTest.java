// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.CancelledHandOut;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionEnd;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

class FakeIbFailureTest extends IbFailureContract {
  private static final RdmaOptions ONE_AT_A_TIME = RdmaOptions.DEFAULT.withPollBatch(1);

  FakeIbFailureTest() {
    super(IbRanks::fake);
  }

  /** Closes the second end while the agent of the first has not yet polled five completions. */
  private static CompletableFuture<Void> leaveAfterSignals(
      IbRanks ranks, List<Connection> ends, boolean flush) throws Exception {
    Connection writer = ends.get(0);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    CountDownLatch release = blockAgent(ranks.context(0));
    for (int i = 1; i <= 5; i++) {
      writer.updateAndSync(remote, 0, new AtomicLong(), i);
    }
    CompletableFuture<Void> flushed =
        flush ? writer.flush(IbRanks.LIMIT) : CompletableFuture.completedFuture(null);
    ends.get(1).close();
    // The leave notice now waits for the blocked agent.
    IbRanks.get(ends.get(1).failed());
    release.countDown();
    Awaitility.await().atMost(IbRanks.LIMIT).until(((ConnectionEnd) writer)::hasPeerLeft);
    CompletableFuture<Void> looked = new CompletableFuture<>();
    ranks.context(0).agent().execute(() -> looked.complete(null));
    IbRanks.get(looked);
    return flushed;
  }

  /** Blocks the context's agent until the latch is released. */
  private static CountDownLatch blockAgent(IbContext context) throws Exception {
    CountDownLatch blocked = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    context
        .agent()
        .execute(
            () -> {
              blocked.countDown();
              try {
                release.await();
              } catch (InterruptedException e) {
                throw new IllegalStateException(e);
              }
            });
    blocked.await();
    return release;
  }

  @Test
  void shouldNotFailWhenThePeerLeavesAfterItAcknowledgedMoreThanABatch() throws Exception {
    try (IbRanks ranks = IbRanks.fake(IbMemoryHandle.PIECE)) {
      List<Connection> ends = ranks.connect(0, 1, 0, ONE_AT_A_TIME);
      leaveAfterSignals(ranks, ends, false);
      assertThat(ends.get(0).failure()).isNull();
    }
  }

  @Test
  void shouldEndAFlushThatThePeerAcknowledgedBeforeItLeft() throws Exception {
    try (IbRanks ranks = IbRanks.fake(IbMemoryHandle.PIECE)) {
      List<Connection> ends = ranks.connect(0, 1, 0, ONE_AT_A_TIME);
      IbRanks.get(leaveAfterSignals(ranks, ends, true));
      assertThat(ends.get(0).failure()).isNull();
    }
  }

  @Test
  void shouldEndAllThatWaitsWhenMemoryCannotBeDeregistered() throws Exception {
    FakeVerbs verbs = new FakeVerbs();
    try (IbRanks ranks = IbRanks.fake(verbs, IbMemoryHandle.PIECE)) {
      Connection writer = ranks.connect(0).get(0);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 128));
      List<RegisteredMemory> sources = List.of(ranks.memory(0, 128), ranks.memory(0, 128));
      CountDownLatch release = blockAgent(ranks.context(0));
      sources.forEach(source -> writer.write(remote, 0, source, 0, 128));
      CompletableFuture<Void> flushed = writer.flush(IbRanks.LIMIT);
      sources.forEach(RegisteredMemory::close);
      verbs.refuseToDeregister();
      writer.close();
      release.countDown();
      assertThat(failureOf(flushed)).isInstanceOf(Aborted.class);
      assertThat(IbRanks.get(writer.failed())).isInstanceOf(Aborted.class);
      // Closed, and no connection uses them any more.
      assertThat(ranks.context(0).openHandles()).isEqualTo(1);
    }
  }

  @Test
  void shouldServeOthersWhenConnectingRunsOutOfMemory() throws Exception {
    FakeVerbs verbs = new FakeVerbs();
    try (IbRanks ranks = IbRanks.fake(verbs, IbMemoryHandle.PIECE)) {
      Connection living = ranks.connect(0).get(0);
      int before = verbs.openLinks();
      verbs.failToRegister(
          (1 + RdmaOptions.DEFAULT.sendQueueSize()) * Long.BYTES,
          new OutOfMemoryError("of a test"));
      assertThatThrownBy(() -> ranks.endpoint(0, 1, 1))
          .isInstanceOf(OutOfMemoryError.class)
          .hasMessage("of a test");
      assertThat(verbs.openLinks()).isEqualTo(before);
      IbRanks.get(living.flush(IbRanks.LIMIT));
    }
  }

  /** The signal after a write that failed must not reach the peer. */
  @Test
  void shouldSendNothingAfterAWriteIfPostingItThrewAnError() throws Exception {
    FakeVerbs verbs = new FakeVerbs();
    try (IbRanks ranks = IbRanks.fake(verbs, IbMemoryHandle.PIECE)) {
      Connection writer = ranks.connect(0).get(0);
      RegisteredMemory source = ranks.memory(0, 64);
      RegisteredMemory target = ranks.memory(1, 128);
      RegisteredMemory remote = ranks.seenByPeer(target);
      verbs.failNextPost(new InternalError("of a test"));
      try {
        writer.write(remote, 0, source, 0, 64);
      } catch (InternalError e) {
        // The caller gets the error only if the agent did not post the write.
        assertThat(e).hasMessage("of a test");
      }
      assertThat(failureOf(writer.flush(IbRanks.LIMIT)))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("of a test");
      assertThatThrownBy(() -> writer.updateAndSync(remote, 64, new AtomicLong(), 1))
          .isInstanceOf(TransportFailure.class);
      assertThat(Contents.getLong(target, 64)).isZero();
    }
  }

  @Test
  void shouldEndTheThreadWhenMemoryCannotBeDeregistered() throws Exception {
    FakeVerbs verbs = new FakeVerbs();
    try (IbRanks ranks = IbRanks.fake(verbs, 64)) {
      ranks.memory(0, 128);
      ranks.memory(0, 128);
      IbContext context = ranks.context(0);
      verbs.refuseToDeregister();
      context.close();
      Awaitility.await().atMost(Duration.ofSeconds(10)).until(() -> context.agent().isTerminated());
      assertThat(context.openHandles()).isZero();
    }
  }

  @Test
  void shouldCloseAConnectionThatIsCancelledWhileItIsHandedOut() throws Exception {
    try (IbRanks ranks = IbRanks.fake(IbMemoryHandle.PIECE)) {
      CancelledHandOut.assertClosed(
          ranks,
          task -> ranks.context(0).agent().execute(task),
          () -> ranks.context(0).openConnections() == 0);
    }
  }
}
