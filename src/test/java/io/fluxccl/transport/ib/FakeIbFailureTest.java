// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
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
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.WatchedBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(180)
class FakeIbFailureTest {
  private final FakeVerbs verbs = new FakeVerbs();
  @AutoClose private final IbRanks ranks = IbRanks.fake(verbs, IbMemoryHandle.PIECE);

  /** The second end leaves while the agent of the first has not yet polled five completions. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldNotFailWhenThePeerLeavesAfterItAcknowledgedAll(boolean flushes) throws Exception {
    verbs.completionsAtOnce = 1;
    Transfer transfer = ranks.transfer(ranks.connect(0, RdmaOptions.DEFAULT), 0, 64);
    ConnectionEnd writer = (ConnectionEnd) transfer.link();
    CountDownLatch release = ranks.block(0);
    for (int i = 1; i <= 5; i++) {
      transfer.signal(0, new AtomicLong(), i);
    }
    CompletableFuture<Void> flushed =
        flushes ? transfer.flushing() : CompletableFuture.completedFuture(null);
    transfer.back().close();
    // The leave notice now waits for the blocked agent.
    get(transfer.back().failed());
    release.countDown();
    Awaitility.await().atMost(LIMIT).until(writer::hasPeerLeft);
    CompletableFuture<Void> polled = new CompletableFuture<>();
    ranks.context(0).agent().execute(() -> polled.complete(null));
    get(polled);
    get(flushed);
    assertThat(writer.failure()).isNull();
  }

  @Test
  void shouldEndAllThatWaitsWhenMemoryCannotBeDeregistered() throws Exception {
    Connection writer = ranks.connect(0).get(0);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 128));
    List<RegisteredMemory> sources = List.of(ranks.memory(0, 128), ranks.memory(0, 128));
    CountDownLatch release = ranks.block(0);
    sources.forEach(source -> writer.write(remote, 0, source, 0, 128));
    CompletableFuture<Void> flushed = writer.flush(LIMIT);
    sources.forEach(RegisteredMemory::close);
    verbs.refuseToDeregister();
    writer.close();
    release.countDown();
    assertThat(failureOf(flushed)).isInstanceOf(Aborted.class);
    assertThat(get(writer.failed())).isInstanceOf(Aborted.class);
    // Closed, and no connection uses them any more.
    assertThat(ranks.context(0).openHandles()).isEqualTo(1);
  }

  @Test
  void shouldServeOthersWhenConnectingRunsOutOfMemory() throws Exception {
    Connection living = ranks.connect(0).get(0);
    int before = verbs.openLinks();
    verbs.failToRegister(
        (1 + RdmaOptions.DEFAULT.sendQueueSize()) * Long.BYTES, new OutOfMemoryError("of a test"));
    assertThatThrownBy(() -> ranks.endpoint(0, 1, 1))
        .isInstanceOf(OutOfMemoryError.class)
        .hasMessage("of a test");
    assertThat(verbs.openLinks()).isEqualTo(before);
    get(living.flush(LIMIT));
  }

  @Test
  void shouldReleaseABufferIfItsRegistrationThrowsAnError() {
    WatchedBuffer watched = new WatchedBuffer(ranks.allocate(0, 192));
    verbs.failToRegister(192, new OutOfMemoryError("of a test"));
    assertThatThrownBy(() -> ranks.context(0).register(watched.buffer()))
        .isInstanceOf(OutOfMemoryError.class)
        .hasMessage("of a test");
    assertThat(watched.retained()).isEqualTo(1);
    assertThat(watched.released()).isEqualTo(1);
  }

  /** The signal after a write that failed must not reach the peer. */
  @Test
  void shouldSendNothingAfterAWriteIfPostingItThrewAnError() throws Exception {
    Transfer transfer = ranks.transfer(0, 128);
    verbs.failNextPost(new InternalError("of a test"));
    try {
      transfer.write(0, 0, 64);
    } catch (InternalError e) {
      // The caller gets the error only if the agent did not post the write.
      assertThat(e).hasMessage("of a test");
    }
    assertFailure(TransportFailure.class, failureOf(transfer.flushing()), "of a test");
    assertThrows(TransportFailure.class, () -> transfer.signal(64, new AtomicLong(), 1));
    assertThat(Contents.getLong(transfer.target(), 64)).isZero();
  }

  @Test
  void shouldEndTheThreadWhenMemoryCannotBeDeregistered() {
    ranks.memory(0, 128);
    ranks.memory(0, 128);
    IbContext context = ranks.context(0);
    verbs.refuseToDeregister();
    context.close();
    Awaitility.await().atMost(Duration.ofSeconds(10)).until(() -> context.agent().isTerminated());
    assertThat(context.openHandles()).isZero();
  }

  @Test
  void shouldCloseAConnectionThatIsCancelledWhileItIsHandedOut() throws Exception {
    CancelledHandOut.assertClosed(
        ranks,
        task -> ranks.context(0).agent().execute(task),
        () -> ranks.context(0).openConnections() == 0);
  }
}
