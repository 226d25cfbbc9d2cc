package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What a rank whose kernel was aborted leaves to its peers, if they only come later. */
@EmulatedGpus
class AbortedLaunchesEmulatedTest {
  private static final int COUNT = 1000;

  @Test
  void shouldNotTellPeersOfOutputsThatItHasNotWritten() throws Exception {
    PacketArea slots = PacketArea.of(PacketKind.SENTINEL, 0, 1, LaunchedRanks.RANKS, COUNT * 4);
    try (LaunchedRanks ranks = new LaunchedRanks(MappedPeers.AREAS_OFFSET, COUNT * 4)) {
      int sentinels = Math.toIntExact(slots.length());
      List<DeviceBuffer> scratch =
          List.of(ranks.allocate(sentinels, -1), ranks.allocate(sentinels, -1));
      for (int rank = 0; rank < LaunchedRanks.RANKS; rank++) {
        BoundCall call =
            ranks.bind(
                rank,
                CollectiveCall.allReduce(
                    ranks.inputs.get(rank),
                    ranks.outputs.get(rank),
                    COUNT,
                    DataType.FLOAT32,
                    ReduceOp.SUM),
                0);
        // The second rank looks at the flag when it has waited for a while; if it need not wait, it
        // takes what is in its output for the result.
        ranks.abort(rank);
        ranks
            .launch(
                rank,
                GpuKernels.one(ranks.gpu, "reduce_bulk_float", 2 * 64 * 512),
                1,
                256,
                ranks.peers(call),
                new Reduction(slots).bind(call),
                new Scratch(LaunchedRanks.memories(scratch), 0, slots.slotBytes(), false))
            .get(60, TimeUnit.SECONDS);
        assertThat(ranks.epoch(rank)).as("launches that rank %d ended", rank).isEqualTo(0);
      }
    }
  }
}
