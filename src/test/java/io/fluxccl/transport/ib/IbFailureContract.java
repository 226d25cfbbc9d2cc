// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.transport.ib.IbRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Each failure ends with a typed error, in time, and only on its own connection. */
@Timeout(180)
abstract class IbFailureContract {
  private static final int ROUNDS = Integer.getInteger("fluxccl.rdma.rounds", 20);

  private final IbRanks.Opener opener;
  private IbRanks ranks;

  IbFailureContract(IbRanks.Opener opener) {
    this.opener = opener;
  }

  @BeforeEach
  void open() {
    ranks = opener.open(IbMemoryHandle.PIECE);
  }

  @AfterEach
  void close() {
    ranks.close();
  }

  @Test
  void shouldFailOnlyTheConnectionThatUsesAWrongKey() throws Exception {
    Connection good = ranks.connect(1_000).get(0);
    RegisteredMemory source = ranks.filled(0, 4096, 1);
    RegisteredMemory target = ranks.memory(1, 4096);
    byte[] wire = target.handle(Transport.IB0).wire();
    wire[IbMemoryHandle.Place.KEYS_INDEX] ^= 0x55;
    RegisteredMemory wrong = ranks.seenByPeer(target, wire, 4096);
    for (int round = 0; round < ROUNDS; round++) {
      Connection link = ranks.connect(round).get(0);
      link.write(wrong, 0, source, 0, 4096);
      assertRefused(link, "a write of 4096 bytes at offset 0", "IBV_WC_REM_ACCESS_ERR");
    }
    assertWorks(good, source, target);
  }

  @Test
  void shouldFailTheConnectionIfItWritesBeyondTheRegisteredRange() throws Exception {
    RegisteredMemory source = ranks.filled(0, 1 << 20, 1);
    RegisteredMemory target = ranks.memory(1, 4096);
    Connection good = ranks.connect(1_000).get(0);
    // The owner registered 4 KiB, so its device refuses a write beyond these.
    RegisteredMemory wrong =
        ranks.seenByPeer(target, target.handle(Transport.IB0).wire(), 1L << 20);
    for (int round = 0; round < ROUNDS; round++) {
      Connection link = ranks.connect(round).get(0);
      link.write(wrong, 512 << 10, source, 0, 64);
      assertRefused(link, "a write of 64 bytes at offset 524288", "IBV_WC_REM_ACCESS_ERR");
    }
    assertWorks(good, source, target);
  }

  @Test
  void shouldRefuseWritesToMemoryThatItsOwnerHasClosed() throws Exception {
    RegisteredMemory source = ranks.filled(0, 64, 1);
    for (int round = 0; round < ROUNDS; round++) {
      Connection link = ranks.connect(round).get(0);
      RegisteredMemory target = ranks.memory(1, 64);
      RegisteredMemory remote = ranks.seenByPeer(target);
      link.write(remote, 0, source, 0, 64);
      get(link.flush(IbRanks.LIMIT));
      target.close();
      link.write(remote, 0, source, 0, 64);
      assertRefused(link, "a write of 64 bytes at offset 0", "IBV_WC_REM_ACCESS_ERR");
    }
  }

  @Test
  void shouldTimeOutWhenThePeerNeverConnects() {
    Endpoint end = ranks.endpoint(0, 1, 0, RdmaOptions.DEFAULT);
    Endpoint other = ranks.endpoint(1, 0, 0, RdmaOptions.DEFAULT);
    other.close();
    FluxCclException reason =
        failureOf(end.connect(other.wire(), Deadline.after(Duration.ofSeconds(1))));
    assertThat(reason).isInstanceOfAny(TransportFailure.class, io.fluxccl.Timeout.class);
    assertThat(reason.rank()).isEqualTo(1);
    assertThat(reason).hasMessageContaining("rank 1");
  }

  @Test
  void shouldNotConnectToAQueuePairThatIsNotThere() throws Exception {
    RdmaOptions quick = RdmaOptions.DEFAULT.withRetries(2, Duration.ofMillis(60));
    Endpoint end = ranks.endpoint(0, 1, 0, quick);
    Endpoint other = ranks.endpoint(1, 0, 0, quick);
    byte[] wire = other.wire();
    wire[IbEndpoint.End.QUEUE_PAIR_INDEX + 1] ^= 0x55;
    FluxCclException reason = failureOf(end.connect(wire, Deadline.after(IbRanks.LIMIT)));
    assertThat(reason)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("rank 1 was not connected: IBV_WC_RETRY_EXC_ERR");
    assertThat(reason.rank()).isEqualTo(1);
    other.close();
    assertThat(ranks.connect(1).get(0).failure()).isNull();
  }

  @Test
  void shouldConnectOnlyAfterThePeerIsReady() throws Exception {
    Endpoint end = ranks.endpoint(0, 1, 0, RdmaOptions.DEFAULT);
    Endpoint other = ranks.endpoint(1, 0, 0, RdmaOptions.DEFAULT);
    CompletableFuture<Void> peerIsReady = new CompletableFuture<>();
    CountDownLatch ready = new CountDownLatch(1);
    CompletableFuture<Connection> there =
        end.connect(
            other.wire(),
            Deadline.after(IbRanks.LIMIT),
            () -> {
              ready.countDown();
              return peerIsReady;
            });
    assertThat(ready.await(IbRanks.LIMIT.toSeconds(), TimeUnit.SECONDS)).isTrue();
    assertThat(there).isNotDone();
    CompletableFuture<Connection> back = other.connect(end.wire(), Deadline.after(IbRanks.LIMIT));
    // The peer has connected to an end that executes requests already.
    get(back);
    assertThat(there).isNotDone();
    peerIsReady.complete(null);
    assertThat(get(there).failure()).isNull();
  }

  @Test
  void shouldFailWithTheReasonOfAPeerThatCannotConnect() {
    Endpoint end = ranks.endpoint(0, 1, 0, RdmaOptions.DEFAULT);
    Endpoint other = ranks.endpoint(1, 0, 0, RdmaOptions.DEFAULT);
    FluxCclException ofPeer = RemoteFailure.of(1, "rank 1 could not do its part: of a test");
    FluxCclException reason =
        failureOf(
            end.connect(
                other.wire(),
                Deadline.after(IbRanks.LIMIT),
                () -> CompletableFuture.failedFuture(ofPeer)));
    assertThat(reason).isSameAs(ofPeer);
    other.close();
  }

  @Test
  void shouldFailAWriterIfThePeerClosesItsEnd() throws Exception {
    RegisteredMemory source = ranks.filled(0, 8 << 20, 1);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 8 << 20));
    for (int round = 0; round < Math.min(ROUNDS, 5); round++) {
      List<Connection> ends = ranks.connect(round);
      CompletableFuture<FluxCclException> writer = writeUntilFailure(ends.get(0), remote, source);
      ends.get(1).close();
      FluxCclException reason = get(writer);
      assertThat(reason).isInstanceOf(TransportFailure.class).hasMessageContaining("rank 1");
      assertThat(reason.rank()).isEqualTo(1);
    }
  }

  /** A thread that writes and flushes, and gives what ends it. Writes at least once before. */
  static CompletableFuture<FluxCclException> writeUntilFailure(
      Connection link, RegisteredMemory target, RegisteredMemory source) throws Exception {
    CountDownLatch begun = new CountDownLatch(1);
    CompletableFuture<FluxCclException> end =
        CompletableFuture.supplyAsync(
            () -> {
              while (true) {
                try {
                  link.write(target, 0, source, 0, source.size());
                  begun.countDown();
                  link.flush(IbRanks.LIMIT).join();
                } catch (FluxCclException | CompletionException e) {
                  return FluxCclException.from(e);
                }
              }
            });
    assertThat(begun.await(IbRanks.LIMIT.toSeconds(), TimeUnit.SECONDS)).isTrue();
    return end;
  }

  private static void assertRefused(Connection link, String operation, String status) {
    FluxCclException reason = failureOf(link.flush(IbRanks.LIMIT));
    assertThat(reason)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining(operation)
        .hasMessageContaining(status)
        .hasMessageContaining("rank 1");
    assertThat(reason.rank()).isEqualTo(1);
    assertThat(link.failure()).isSameAs(reason);
    assertThatThrownBy(link::beginFlush).isSameAs(reason);
  }

  private void assertWorks(Connection link, RegisteredMemory source, RegisteredMemory target)
      throws Exception {
    link.write(ranks.seenByPeer(target), 0, source, 0, 4096);
    get(link.flush(IbRanks.LIMIT));
    Contents.assertSame(target, 0, source, 0, 4096);
  }

  static FluxCclException failureOf(CompletableFuture<?> future) {
    ExecutionException failure = catchThrowableOfType(ExecutionException.class, () -> get(future));
    assertThat(failure).isNotNull();
    return FluxCclException.from(failure);
  }
}
