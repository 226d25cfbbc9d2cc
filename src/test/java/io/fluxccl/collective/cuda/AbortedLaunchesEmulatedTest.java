// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.testing.EmulatedGpus;
import java.util.List;
import java.util.concurrent.CompletableFuture;
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
        BoundCall call = ranks.bind(rank, allReduce(ranks, rank), 0);
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
                new Scratch.Handle(LaunchedRanks.memories(scratch), 0, slots.slotBytes(), false))
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
        BoundCall call = ranks.bind(rank, allReduce(ranks, rank), -1);
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
    int area = MappedPeers.AREAS_OFFSET;
    ExchangeRing ring =
        kernel.endsWith("ll8")
            ? ExchangeRing.ll8(area, LaunchedRanks.RANKS)
            : ExchangeRing.ll128(area, LaunchedRanks.RANKS);
    try (LaunchedRanks ranks = new LaunchedRanks(ring.offset() + ring.length(), 2 * bytes)) {
      byte launch = 0;
      for (int rank : ABORTED_TWICE) {
        DeviceBuffer input = ranks.inputs.get(rank);
        DeviceBuffer output = ranks.outputs.get(rank);
        input.upload(0, new byte[] {++launch});
        ranks.abort(rank);
        CudaKernel exchange = GpuKernels.one(ranks.gpu, "exchange_" + kernel, 0);
        CompletableFuture<Void> done;
        if (kernel.startsWith("short")) {
          ExchangeParts parts = new ExchangeParts().clear(ring);
          parts.add(1 - rank, input.address(), bytes, output.address(), bytes);
          ShortExchange call = ranks.shortExchange(rank);
          assertThat(call.fill(parts, ring)).isTrue();
          done = ranks.launch(rank, exchange, 2, 256, call);
        } else {
          BoundCall call =
              ranks.bind(rank, CollectiveCall.allGather(input, output, bytes, DataType.UINT8), -1);
          ExchangeParts parts =
              new ExchangeParts().of(call, ring, ranks.states.get(rank).address());
          done = ranks.launch(rank, exchange, 2, 256, ranks.peers(call), parts);
        }
        done.get(60, TimeUnit.SECONDS);
      }
      byte[] first = new byte[1];
      ranks.outputs.get(1).download(0, first);
      assertThat(first[0]).isNotEqualTo((byte) 2);
    }
  }

  private static CollectiveCall allReduce(LaunchedRanks ranks, int rank) {
    return CollectiveCall.allReduce(
        ranks.inputs.get(rank), ranks.outputs.get(rank), COUNT, DataType.FLOAT32, ReduceOp.SUM);
  }
}
