// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Memory of emulated GPUs over real queue pairs, registered by its address. */
@EmulatedGpus
@RequiresRdma
@Timeout(120)
class CudaIbTest {
  @Test
  void shouldWriteAndSignalBetweenGpusInBothDirections() throws Exception {
    int size = 300_000;
    try (IbRanks ranks = IbRanks.onGpus(1 << 20)) {
      List<Connection> ends = ranks.connect(0);
      for (int rank = 0; rank < 2; rank++) {
        RegisteredMemory source = ranks.filled(rank, size, rank);
        RegisteredMemory target = ranks.memory(1 - rank, size + 8);
        RegisteredMemory remote = ranks.seenByPeer(target);
        ends.get(rank).write(remote, 8, source, 0, size);
        ends.get(rank).updateAndSync(remote, 0, new AtomicLong(), 7);
        ranks.await(ends.get(rank).flush(ranks.limit()));
        Contents.assertSame(target, 8, source, 0, size);
        assertThat(Contents.getLong(target, 0)).isEqualTo(7);
      }
    }
  }
}
