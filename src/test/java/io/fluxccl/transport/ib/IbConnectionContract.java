// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transfer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Over whichever verbs and devices the ranks have. Each failure ends with a typed error, in time,
 * and only on its own connection.
 */
@Timeout(180)
abstract class IbConnectionContract extends ConnectionContract<IbRanks> {
  private static final int ROUNDS = Integer.getInteger("fluxccl.rdma.rounds", 20);

  /** So that a few MiB are registered in pieces. */
  private static final long PIECE = 1 << 20;

  private final IbRanks.Opener opener;

  IbConnectionContract(IbRanks.Opener opener) {
    this.opener = opener;
  }

  @Override
  protected IbRanks openRanks() {
    return opener.open(PIECE);
  }

  /** Emulated devices are slow. */
  @Override
  protected int longWrite() {
    return 2 << 20;
  }

  @Override
  protected int randomWrites() {
    return 40;
  }

  @Override
  protected int manyWrites() {
    return Rounds.of(4_000, 10_000);
  }

  @AfterEach
  @Override
  protected void close() throws Exception {
    super.close();
    for (int rank = 0; rank < 2; rank++) {
      IbContext context = ranks.context(rank);
      Awaitility.await()
          .atMost(LIMIT)
          .until(() -> context.openConnections() == 0 && context.openHandles() == 0);
    }
  }

  @Test
  void shouldSplitWritesAtMessagesAndAtPiecesOfBothMemories() throws Exception {
    int size = 5 * (int) PIECE + 12345;
    RdmaOptions options = RdmaOptions.DEFAULT.withMaxMessage(300_000).withSendQueueSize(16);
    Transfer transfer = ranks.transfer(ranks.connect(0, options), 0, size + 777);
    transfer.write(777, 0, size).flush();
    transfer.assertWritten(777, 0, size);
  }

  @Test
  void shouldHoldBackWritesThatOutrunTheSendQueue() throws Exception {
    RdmaOptions options = RdmaOptions.DEFAULT.withSendQueueSize(16);
    assertManySmallWrites(ranks.transfer(ranks.connect(0, options), 0, 2 * manyWrites() * 8));
  }

  @Test
  void shouldAllocateNothingForWriteSignalAndPollInSteadyState() throws Exception {
    long agent =
        Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().equals("fluxccl-ib0-rank0"))
            .findFirst()
            .orElseThrow()
            .getId();
    assertThat(leastAllocated(900, 300, Thread.currentThread().getId(), agent))
        .as("bytes of 900 operations, on both threads")
        .isLessThan(900);
  }

  @Test
  void shouldFailOnlyTheConnectionThatUsesAWrongKey() throws Exception {
    Transfer good = ranks.transfer(1_000, 4096);
    byte[] wire = ranks.wire(good.target());
    wire[IbMemoryHandle.Place.KEYS_INDEX] ^= 0x55;
    RegisteredMemory wrong = ranks.seenByPeer(good.target(), wire, 4096);
    assertRefused(wrong, 0, good.source(), "a write of 4096 bytes at offset 0");
    good.check();
  }

  @Test
  void shouldFailTheConnectionIfItWritesBeyondTheRegisteredRange() throws Exception {
    Transfer good = ranks.transfer(1_000, 4096);
    // The owner registered 4 KiB, so its device refuses a write beyond these.
    RegisteredMemory wrong = ranks.seenByPeer(good.target(), ranks.wire(good.target()), 1L << 20);
    assertRefused(wrong, 512 << 10, ranks.memory(0, 64), "a write of 64 bytes at offset 524288");
    good.check();
  }

  @Test
  void shouldRefuseWritesToMemoryThatItsOwnerHasClosed() throws Exception {
    for (int round = 0; round < ROUNDS; round++) {
      Transfer transfer = ranks.transfer(round, 64);
      transfer.check();
      transfer.target().close();
      transfer.write();
      assertRefused(transfer.link(), "a write of 64 bytes at offset 0");
    }
  }

  private void assertRefused(
      RegisteredMemory wrong, long offset, RegisteredMemory source, String operation)
      throws Exception {
    for (int round = 0; round < ROUNDS; round++) {
      Connection link = ranks.connect(round).get(0);
      link.write(wrong, offset, source, 0, source.size());
      assertRefused(link, operation);
    }
  }

  private static void assertRefused(Connection link, String operation) {
    FluxCclException reason = failureOf(link.flush(LIMIT));
    assertFailureOf(
        1, TransportFailure.class, reason, operation, "IBV_WC_REM_ACCESS_ERR", "rank 1");
    assertThat(link.failure()).isSameAs(reason);
    assertThatThrownBy(link::beginFlush).isSameAs(reason);
  }

  @Test
  void shouldTimeOutWhenThePeerNeverConnects() {
    Endpoint end = ranks.endpoint(0, 1, 0);
    Endpoint other = ranks.endpoint(1, 0, 0);
    other.close();
    FluxCclException reason =
        failureOf(end.connect(other.wire(), Deadline.after(Duration.ofSeconds(1))));
    assertThat(reason)
        .isInstanceOfAny(TransportFailure.class, io.fluxccl.Timeout.class)
        .hasMessageContaining("rank 1");
    assertThat(reason.rank()).isEqualTo(1);
  }

  @Test
  void shouldNotConnectToAQueuePairThatIsNotThere() throws Exception {
    EndpointConfig quick =
        IbRanks.config(RdmaOptions.DEFAULT.withRetries(2, Duration.ofMillis(60)));
    Endpoint end = ranks.context(0).createEndpoint(1, 0, quick);
    Endpoint other = ranks.context(1).createEndpoint(0, 0, quick);
    byte[] wire = other.wire();
    wire[IbEndpoint.End.QUEUE_PAIR_INDEX + 1] ^= 0x55;
    FluxCclException reason = failureOf(end.connect(wire, deadline()));
    assertFailureOf(
        1, TransportFailure.class, reason, "rank 1 was not connected: IBV_WC_RETRY_EXC_ERR");
    other.close();
    assertThat(ranks.connect(1).get(0).failure()).isNull();
  }

  @Test
  void shouldConnectOnlyAfterThePeerIsReady() throws Exception {
    Endpoint end = ranks.endpoint(0, 1, 0);
    Endpoint other = ranks.endpoint(1, 0, 0);
    CompletableFuture<Void> ready = new CompletableFuture<>();
    CompletableFuture<Void> peerIsReady = new CompletableFuture<>();
    CompletableFuture<Connection> there =
        end.connect(
            other.wire(),
            deadline(),
            () -> {
              ready.complete(null);
              return peerIsReady;
            });
    get(ready);
    assertThat(there).isNotDone();
    // The peer connects to an end that executes requests already.
    get(other.connect(end.wire(), deadline()));
    assertThat(there).isNotDone();
    peerIsReady.complete(null);
    assertThat(get(there).failure()).isNull();
  }

  @Test
  void shouldFailWithTheReasonOfAPeerThatCannotConnect() {
    Endpoint end = ranks.endpoint(0, 1, 0);
    Endpoint other = ranks.endpoint(1, 0, 0);
    FluxCclException ofPeer = RemoteFailure.of(1, "rank 1 could not do its part: of a test");
    CompletableFuture<Void> failed = CompletableFuture.failedFuture(ofPeer);
    assertThat(failureOf(end.connect(other.wire(), deadline(), () -> failed))).isSameAs(ofPeer);
    other.close();
  }

  @Test
  void shouldFailAWriterIfThePeerClosesItsEnd() throws Exception {
    for (int round = 0; round < Math.min(ROUNDS, 5); round++) {
      Transfer transfer = ranks.transfer(round, 8 << 20);
      CompletableFuture<FluxCclException> writer = writeUntilFailure(transfer);
      transfer.back().close();
      FluxCclException reason = get(writer);
      assertFailureOf(1, TransportFailure.class, reason, "rank 1");
      transfer.closeMemory();
    }
  }

  /** Writes and flushes in a thread until that fails, at least once before this returns. */
  static CompletableFuture<FluxCclException> writeUntilFailure(Transfer transfer) throws Exception {
    CompletableFuture<Void> begun = new CompletableFuture<>();
    CompletableFuture<FluxCclException> end =
        CompletableFuture.supplyAsync(
            () -> {
              while (true) {
                try {
                  transfer.write();
                  begun.complete(null);
                  transfer.flushing().join();
                } catch (FluxCclException | CompletionException e) {
                  return FluxCclException.from(e);
                }
              }
            });
    get(begun);
    return end;
  }
}
