// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.collective.Collectives;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRank;
import org.junit.jupiter.api.Test;

/** Two GPUs, one rank on each. */
@RequiresGpus(2)
class OverlappedProductsTwoGpusTest extends OverlappedProductsContract {
  @Test
  void shouldNormTheSummedRowsOfPackedWeights(LocalRank rank, Collectives collectives) {
    checkPackedWeights(rank, collectives);
  }

  @Test
  void shouldFailOnAllRanksIfOneCannotTune(LocalRank rank, Collectives collectives) {
    checkTuneFailsOnAllRanks(rank, collectives);
  }
}
