// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.collective.Collectives;
import io.fluxccl.matmul.OverlapTable.Way;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks on the host device, which multiplies in Java. */
class OverlappedProductsHostTest extends OverlappedProductsContract {
  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {1, 3})
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldGiveTheSumsOfAnyNumberOfRanks(int nRanks, LocalRank rank, Collectives collectives) {
    checkAll(rank, collectives, DataType.BFLOAT16, Way.PIECES);
  }
}
