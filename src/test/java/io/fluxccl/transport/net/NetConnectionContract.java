// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.ConnectionContract;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.Transfer;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Tests of connections over each network. */
@Timeout(120)
abstract class NetConnectionContract extends ConnectionContract<NetRanks> {
  @TempDir private static Path folder;

  private final Network.Opener opener;

  NetConnectionContract(Network.Opener opener) {
    this.opener = opener;
  }

  @Override
  protected NetRanks openRanks() throws Exception {
    return opener.open(folder);
  }

  /** Around what a message, a slot of the staging ring and the ring hold. */
  @Override
  protected int[] sizes() {
    int slot = StagingSlots.SLOT_BYTES;
    int ring = StagingSlots.MAX_SLOTS * slot;
    IntStream around =
        IntStream.of(2048, 4096, slot, ring).flatMap(size -> IntStream.range(size - 1, size + 2));
    IntStream others = IntStream.of(1, 7, 900, ring - 33, ring - 32, 4_206_649, 3 * ring + 5);
    return IntStream.concat(around, others).toArray();
  }

  /** More than may wait. */
  @Override
  protected int manyWrites() {
    return Rounds.of(6_000, 70_000);
  }

  @Override
  protected int longWrite() {
    return 32 << 20;
  }

  @Override
  protected int signalRounds() {
    return Rounds.of(500, 2000);
  }

  /** On a rail, and within a message. */
  @Override
  protected int[] signalledLongs() {
    return new int[] {32 << 10, 1024, 1, 1};
  }

  @Test
  void shouldKeepOrderWhenPostsOutrunTheQueue() throws Exception {
    Transfer transfer = ranks.transfer(0, 16384);
    AtomicLong counter = new AtomicLong();
    CountDownLatch release = ranks.block(0);
    for (int i = 1; i <= 20_000; i++) {
      transfer.signal(0, counter, i);
      if (i % 100 == 0) {
        transfer.write(8192, 0, 8192);
      }
    }
    release.countDown();
    transfer.flush();
    assertThat(Contents.getLong(transfer.target(), 0)).isEqualTo(20_000);
  }

  @Tag("alone")
  @Test
  void shouldAllocateNothingWhenPostingInSteadyState() throws Exception {
    long poster = Thread.currentThread().getId();
    // The streams of the host device allocate what is enqueued.
    boolean streams =
        ranks.context(0).staging() != null && ranks.device(0).kind() == DeviceKind.HOST;
    long[] ids = streams ? new long[] {poster} : new long[] {poster, agentOf(0), agentOf(1)};
    // Short rounds: a listener that is asked now and then for new links allocates.
    assertThat(leastAllocated(600, 10, ids))
        .as("bytes for 31 posts, by the poster and both agents")
        .isZero();
  }

  private long agentOf(int rank) throws Exception {
    return ranks.onAgent(rank, () -> Thread.currentThread().getId());
  }
}
