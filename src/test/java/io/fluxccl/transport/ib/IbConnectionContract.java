// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.Transfer;
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
    RdmaOptions options =
        RdmaOptions.DEFAULT.withMaxMessage(300_000).withSendQueueSize(16).withInlineThreshold(0);
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
    assertThat(leastAllocated(10, 300, Thread.currentThread().getId(), agent))
        .as("bytes of 900 operations, on both threads")
        .isLessThan(900);
  }
}
