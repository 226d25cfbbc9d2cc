// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.EmulatedGpus;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Peers that launch after the kernel of another rank was aborted. */
@EmulatedGpus
class AbortedLaunchesEmulatedTest {
  private static final int COUNT = 1000;

  /** Ranks in launch order: rank 0 launches again after its first launch was aborted. */
  private static final int[] ABORTED_TWICE = {0, 0, 1};

  @Test
  void shouldNotSignalPeersIfAbortedBeforeWritingOutputs() throws Exception {
    PacketArea slots =
        PacketArea.of(PacketArea.Kind.SENTINEL, 0, 1, LaunchedRanks.RANKS, COUNT * 4);
    try (LaunchedRanks ranks = new LaunchedRanks(MappedPeers.AREAS_OFFSET, COUNT * 4)) {
      int sentinels = Math.toIntExact(slots.length());
      List<DeviceBuffer> scratch =
          List.of(ranks.allocate(sentinels, -1), ranks.allocate(sentinels, -1));
      for (int rank = 0; rank < LaunchedRanks.RANKS; rank++) {
        BoundCall call = ranks.bind(rank, allReduce(ranks, rank), true);
        // The second rank polls the flag only after it has waited. If it did not have to wait, it
        // would take the old content of its output for the result.
        ranks.abort(rank);
        ranks
            .launch(
                rank,
                GpuKernels.one(ranks.gpu, "reduce_bulk_float", 2 * 64 * 512),
                1,
                256,
                ranks.peers(call),
                new Reduction(slots).bind(call),
                new Scratch.Handle(LaunchedRanks.addresses(scratch), 0, slots.slotBytes(), false))
            .get(60, TimeUnit.SECONDS);
        assertThat(ranks.epoch(rank)).as("1 if rank %d ended its launch", rank).isNotEqualTo(1);
      }
    }
  }

  @ParameterizedTest
  @CsvSource({"one_shot, LL8, 1", "one_shot, LL128, 1", "two_shots, LL8, 2", "two_shots, LL128, 2"})
  void shouldNotMixAnAbortedReductionIntoTheNext(String kernel, PacketArea.Kind kind, int phases)
      throws Exception {
    PacketArea slots =
        PacketArea.of(kind, MappedPeers.AREAS_OFFSET, phases, LaunchedRanks.RANKS, COUNT * 4);
    try (LaunchedRanks ranks = new LaunchedRanks(slots.end(), COUNT * 4)) {
      for (int rank : ABORTED_TWICE) {
        BoundCall call = ranks.bind(rank, allReduce(ranks, rank), false);
        ranks.abort(rank);
        ranks
            .launch(
                rank,
                GpuKernels.one(ranks.gpu, "reduce_" + kernel + "_" + kind.label() + "_float", 0),
                2,
                256,
                ranks.peers(call),
                new Reduction(slots).bind(call))
            .get(60, TimeUnit.SECONDS);
      }
      assertThat(ranks.epoch(1)).as("1 if rank 1 ended its launch").isNotEqualTo(1);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"ll8", "ll128", "short_ll8", "short_ll128"})
  void shouldNotMixAnAbortedExchangeIntoTheNext(String kernel) throws Exception {
    int bytes = COUNT * 2;
    ExchangeRing ring = LaunchedRanks.ring(kernel);
    try (LaunchedRanks ranks = new LaunchedRanks(ring.offset() + ring.length(), 2 * bytes)) {
      byte launch = 0;
      for (int rank : ABORTED_TWICE) {
        DeviceBuffer input = ranks.inputs.get(rank).slice(0, bytes);
        DeviceBuffer output = ranks.outputs.get(rank).slice(0, bytes);
        input.upload(0, new byte[] {++launch});
        ranks.abort(rank);
        ranks.exchange(rank, kernel, input, output, 2, 256).get(60, TimeUnit.SECONDS);
      }
      assertThat(Bytes.of(ranks.outputs.get(1), 0, 1)[0]).isNotEqualTo((byte) 2);
    }
  }

  private static CollectiveCall allReduce(LaunchedRanks ranks, int rank) {
    return CollectiveCall.allReduce(
        ranks.inputs.get(rank), ranks.outputs.get(rank), COUNT, DataType.FLOAT32, ReduceOp.SUM);
  }
}
