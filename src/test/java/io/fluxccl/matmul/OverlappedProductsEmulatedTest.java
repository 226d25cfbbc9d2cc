// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.collective.Collectives;
import io.fluxccl.matmul.OverlapTable.Way;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** GPUs whose kernels, copies and cuBLASLt run on the CPU, one rank on each. */
@EmulatedGpus
@Tag("any-order")
class OverlappedProductsEmulatedTest extends OverlappedProductsContract {
  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {1, 3, 4})
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldGiveTheSumsOfAnyNumberOfRanks(int nRanks, LocalRank rank, Collectives collectives) {
    checkAll(rank, collectives, DataType.FLOAT16, Way.PIECES);
  }

  @Test
  void shouldNormTheSummedRowsOfPackedWeights(LocalRank rank, Collectives collectives) {
    checkPackedWeights(rank, collectives);
  }

  @Test
  void shouldFailOnAllRanksIfOneCannotTune(LocalRank rank, Collectives collectives) {
    checkTuneFailsOnAllRanks(rank, collectives);
  }
}
