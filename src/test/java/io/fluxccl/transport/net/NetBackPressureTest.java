// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import java.util.List;
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
      List<Connection> ends = ranks.connect(0, 1, 0);
      RegisteredMemory source = ranks.filled(0, size, 1);
      RegisteredMemory target = ranks.memory(1, size);
      RegisteredMemory remote = ranks.seenByPeer(target);
      CountDownLatch reads = new CountDownLatch(1);
      ranks.context(1).agent().execute(() -> awaitOrFail(reads));

      for (int i = 0; i < writes; i++) {
        ends.get(0).write(remote, 0, source, 0, size);
      }
      CompletableFuture<Void> flush = ends.get(0).flush(LIMIT);
      NetConnection sender = (NetConnection) ends.get(0);
      try {
        await().until(() -> !get(hasPosts(ranks, sender)));
        assertThat(sender.queue().isEmpty()).isFalse();
        assertThat(sender.resumptions()).as("a link that is lost takes no posts").isZero();
      } finally {
        reads.countDown();
      }

      get(flush);
      assertThat(Contents.get(target, 0, size)).isEqualTo(Contents.get(source, 0, size));
    }
  }

  private static CompletableFuture<Boolean> hasPosts(NetRanks ranks, NetConnection sender) {
    CompletableFuture<Boolean> posts = new CompletableFuture<>();
    ranks.context(0).agent().execute(() -> posts.complete(sender.hasPosts()));
    return posts;
  }

  private static void awaitOrFail(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
