// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRank;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Fused all-reduces of equal rows on GPUs, which must produce identical results. */
@RequiresGpus(2)
@OnRanks(seconds = 180)
class FusedGpuTest {
  private static final CollectivesOptions DEFAULT = CollectivesOptions.DEFAULT;

  private final FusedRows rows = new FusedRows();

  @ParameterizedTest(name = "rows of {0}")
  @ValueSource(ints = {264, 4096, 6144, 8192, 16384})
  void shouldProduceIdenticalRowsOnTwoRanks(int hidden, LocalRank rank) {
    // Results of all rows are kept.
    int[] counts = hidden > 4096 ? new int[] {1, 6, 31, 128} : new int[] {1, 2, 31, 64, 512};
    rows.check(rank, DEFAULT, hidden, counts);
    assertThat(rows.used).contains("fused-one-shot", SeparateEpilogue.NAME);
  }

  @Test
  void shouldProduceIdenticalRowsForAnyRowCount(LocalRank rank) {
    rows.check(rank, DEFAULT, 512, IntStream.rangeClosed(1, 70).toArray());
    assertThat(rows.used).containsOnly("fused-one-shot", "fused-two-shots", SeparateEpilogue.NAME);
  }

  /** Eight ranks, which share GPUs if there are fewer than eight. */
  @ParameterizedTest(name = "rows of {0}")
  @ValueSource(ints = {520, 4096})
  @OnRanks(8)
  void shouldProduceIdenticalRowsOnEightRanks(int hidden, LocalRank rank) {
    rows.check(rank, DEFAULT, hidden, 1, 9, 100);
  }
}
