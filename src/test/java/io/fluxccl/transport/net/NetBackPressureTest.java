// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.transport.Transfer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Posts to a peer that reads nothing for a while. */
@Timeout(120)
class NetBackPressureTest {
  @ParameterizedTest
  @CsvSource({"8, 20000", "1048576, 400"})
  void shouldNotKeepTheAgentAwakeForPostsThatFindNoRoom(int size, int writes) throws Exception {
    try (NetRanks ranks = NetRanks.ethernet(false)) {
      Transfer transfer = ranks.transfer(0, size);
      NetConnection sender = (NetConnection) transfer.link();
      CountDownLatch reads = ranks.block(1);
      for (int i = 0; i < writes; i++) {
        transfer.write();
      }
      CompletableFuture<Void> flush = transfer.flushing();
      try {
        await().until(() -> !ranks.onAgent(0, sender::hasPosts));
        assertThat(sender.queue().isEmpty()).isFalse();
        assertThat(sender.resumptions()).as("a link that is lost takes no posts").isZero();
      } finally {
        reads.countDown();
      }
      get(flush);
      transfer.assertWritten();
    }
  }
}
