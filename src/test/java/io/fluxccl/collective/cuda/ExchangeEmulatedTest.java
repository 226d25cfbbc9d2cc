// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.Collective;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Four GPUs whose kernels run on the CPU. */
@EmulatedGpus
@OnRanks
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
    checkAll(nRanks, what, algorithm, true, 2003);
  }
}
