// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.transport.ib.IbRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Over whichever verbs and devices the ranks have. */
@Timeout(120)
abstract class IbConnectionContract extends ConnectionContract<IbRanks> {
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
  protected int manyWrites() {
    return Rounds.of(4_000, 10_000);
  }

  @AfterEach
  @Override
  protected void close() throws Exception {
    super.close();
    Awaitility.await()
        .atMost(Duration.ofSeconds(60))
        .untilAsserted(
            () -> {
              for (int rank = 0; rank < 2; rank++) {
                assertThat(ranks.context(rank).openConnections()).isZero();
                assertThat(ranks.context(rank).openHandles()).isZero();
              }
            });
  }

  @Test
  void shouldSplitWritesAtMessagesAndAtPiecesOfBothMemories() throws Exception {
    int size = 5 * (int) PIECE + 12345;
    RdmaOptions options =
        RdmaOptions.DEFAULT.withMaxMessage(300_000).withSendQueueSize(16).withInlineThreshold(0);
    Connection link = ranks.connect(0, 1, 0, options).get(0);
    RegisteredMemory source = ranks.filled(0, size, 1);
    RegisteredMemory target = ranks.memory(1, size + 777);
    link.write(ranks.seenByPeer(target), 777, source, 0, size);
    get(link.flush(IbRanks.LIMIT));
    Contents.assertSame(target, 777, source, 0, size);
  }

  @Test
  void shouldHoldBackWritesThatOutrunTheSendQueue() throws Exception {
    Connection link = ranks.connect(0, 1, 0, RdmaOptions.DEFAULT.withSendQueueSize(16)).get(0);
    int count = 2 * manyWrites();
    RegisteredMemory source = ranks.filled(0, count * 8, 3);
    RegisteredMemory target = ranks.memory(1, count * 8);
    RegisteredMemory remote = ranks.seenByPeer(target);
    for (int i = 0; i < count; i++) {
      link.write(remote, i * 8L, source, i * 8L, 8);
    }
    get(link.flush(IbRanks.LIMIT));
    Contents.assertSame(target, 0, source, 0, count * 8);
  }

  @Test
  void shouldAllocateNothingForWriteSignalAndPollInSteadyState() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64 << 10);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64 << 10));
    AtomicLong counter = new AtomicLong();
    long allocated =
        AllocatedBytes.least(
            10,
            () -> {
              for (int i = 0; i < 300; i++) {
                link.write(remote, 0, source, 0, 8);
                link.write(remote, 0, source, 0, 4096);
                link.updateAndSync(remote, 0, counter, i);
              }
              long ticket = link.beginFlush();
              while (link.flushedTicket() < ticket && link.failure() == null) {
                Thread.onSpinWait();
              }
            },
            Thread.currentThread().getId(),
            idOf("fluxccl-ib0-rank0"));
    assertThat(allocated).as("bytes of 900 operations, on both threads").isLessThan(900);
  }

  private static long idOf(String name) {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals(name))
        .findFirst()
        .orElseThrow()
        .getId();
  }
}
