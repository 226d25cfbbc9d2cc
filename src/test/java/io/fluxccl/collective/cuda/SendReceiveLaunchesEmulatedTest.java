// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.DataType.UINT8;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Large messages of send-receives, with other sizes and grids than lanes would choose. */
@EmulatedGpus
class SendReceiveLaunchesEmulatedTest {
  private static final int MESSAGES = 4;

  /** Every other message is written directly to the receiver, the rest through the ring. */
  @ParameterizedTest(name = "{0} bytes from {1} blocks of {2} warps, {3} units at once")
  @CsvSource({
    "1, 1, 4, 0",
    "128, 1, 4, 8",
    "8192, 8, 8, 0",
    "8192, 8, 8, 2",
    "32768, 8, 8, 16",
    "65000, 8, 8, 32",
    "245760, 4, 16, 0",
    "245760, 4, 16, 64",
    "245760, 4, 16, 21"
  })
  void shouldGiveEveryTeamThatSendsAShare(int bytes, int blocks, int warps, int firstUnits)
      throws Exception {
    ExchangeRing ring = ExchangeRing.ll128(MappedPeers.AREAS_OFFSET, LaunchedRanks.RANKS);
    try (LaunchedRanks ranks = new LaunchedRanks(ring.offset() + ring.length(), bytes)) {
      DeviceBuffer registrations = ranks.allocate(MappedPeers.MAX_RANKS * Long.BYTES, 0);
      ByteBuffer known = ByteBuffer.allocateDirect(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      known.putLong(0, ranks.outputs.get(1).address());
      registrations.upload(Long.BYTES, known);
      byte[] message = LaunchedRanks.random(1, bytes);
      ranks.inputs.get(0).upload(0, message);
      CompletableFuture<?>[] done = new CompletableFuture<?>[LaunchedRanks.RANKS];
      for (int i = 0; i < MESSAGES; i++) {
        for (int rank = 0; rank < LaunchedRanks.RANKS; rank++) {
          BoundCall call = ranks.bind(rank, call(ranks, rank, bytes), i % 2 == 0 ? 0 : -1);
          done[rank] =
              ranks.launch(
                  rank,
                  GpuKernels.one(ranks.gpu, "exchange_send_receive", 0),
                  blocks,
                  warps * 32,
                  ranks.peers(call),
                  new ExchangeParts()
                      .ofSendReceive(call, ring, 1, firstUnits, registrations.address(), 1));
        }
      }
      CompletableFuture.allOf(done).get(60, TimeUnit.SECONDS);
      assertThat(LaunchedRanks.download(ranks.outputs.get(1), bytes)).isEqualTo(message);
    }
  }

  private static CollectiveCall call(LaunchedRanks ranks, int rank, int bytes) {
    DeviceBuffer input = ranks.inputs.get(rank);
    DeviceBuffer output = ranks.outputs.get(rank);
    int none = CollectiveCall.NO_PEER;
    return rank == 0
        ? CollectiveCall.sendReceive(input, bytes, 1, output, 0, none, UINT8)
        : CollectiveCall.sendReceive(input, 0, none, output, bytes, 0, UINT8);
  }
}
