// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRanks;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Four GPUs whose kernels run on the CPU. */
@EmulatedGpus
class ExchangeEmulatedTest extends ExchangeContract {
  @Override
  int most() {
    return 4;
  }

  @ParameterizedTest
  @CsvSource({
    "5,ALL_TO_ALL,exchange-ll8",
    "16,ALL_GATHER,exchange-ll128",
    "7,GATHER,exchange-ll128",
    "7,ALL_TO_ALL,exchange-push",
    "8,BROADCAST,exchange-spread"
  })
  void shouldWorkAmongMoreRanksThanGpus(int nRanks, Collective what, String algorithm) {
    checkAll(nRanks, what, algorithm, true, new int[] {2003});
  }

  @Test
  void shouldChooseBySizeAndRegistration() {
    int most = Rounds.of(16, 64) << 20;
    try (LocalRanks ranks = ranks(8)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = Collectives.create(rank.communicator()).join();
                DeviceBuffer input = rank.device().allocate(8 << 20);
                DeviceBuffer output = rank.device().allocate((long) most)) {
              assertThat(chosen(collectives, input, output, 1 << 10)).isEqualTo("exchange-ll8");
              assertThat(chosen(collectives, input, output, 1 << 20)).isEqualTo("exchange-ll128");
              assertThat(chosen(collectives, input, output, most)).isEqualTo("exchange-ll128");
              collectives.register(output).join();
              assertThat(chosen(collectives, input, output, 1 << 20)).isEqualTo("exchange-ll128");
              assertThat(chosen(collectives, input, output, 16 << 20)).isEqualTo("exchange-push");
              CollectiveCall barrier = CollectiveCall.barrier();
              assertThat(collectives.algorithmFor(barrier)).isEqualTo("exchange-ll8");
            }
          });
    }
  }

  private static String chosen(
      Collectives collectives, DeviceBuffer input, DeviceBuffer output, int total) {
    return collectives.algorithmFor(
        CollectiveCall.allGather(input, output, total / 8, DataType.UINT8));
  }
}
