// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Fused and plain all-reduces of equal rows on GPUs, which must produce identical results. */
@RequiresGpus(2)
class FusedGpuTest {
  @ParameterizedTest(name = "rows of {0}")
  @ValueSource(ints = {264, 4096, 6144, 8192, 16384})
  void shouldProduceIdenticalRowsOnTwoRanks(int hidden) {
    FusedRows rows = new FusedRows();
    // Results of all rows are kept.
    int[] counts = hidden > 4096 ? new int[] {1, 6, 31, 128} : new int[] {1, 2, 31, 64, 512};
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          FusedRows.LONG, rank -> rows.check(rank, CollectivesOptions.DEFAULT, hidden, counts));
    }
    assertThat(rows.used).containsKeys("fused-one-shot", SeparateEpilogue.NAME);
  }

  @Test
  void shouldProduceIdenticalRowsForAnyRowCount() {
    FusedRows rows = new FusedRows();
    int[] counts = IntStream.rangeClosed(1, 70).toArray();
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(FusedRows.LONG, rank -> rows.check(rank, CollectivesOptions.DEFAULT, 512, counts));
    }
    assertThat(rows.used)
        .containsOnlyKeys("fused-one-shot", "fused-two-shots", SeparateEpilogue.NAME);
  }

  /** Eight ranks, which share GPUs if there are fewer than eight. */
  @ParameterizedTest(name = "rows of {0}")
  @ValueSource(ints = {520, 4096})
  void shouldProduceIdenticalRowsOnEightRanks(int hidden) {
    FusedRows rows = new FusedRows();
    try (LocalRanks ranks = LocalRanks.onGpus(8)) {
      ranks.run(
          FusedRows.LONG, rank -> rows.check(rank, CollectivesOptions.DEFAULT, hidden, 1, 9, 100));
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 8})
  void shouldSumRowsIdenticallyAtAnyPosition(int nRanks) {
    FusedRows rows = new FusedRows();
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      ranks.run(FusedRows.LONG, rank -> rows.checkPlain(rank, 1024, 1, 2, 7, 64, 512));
    }
    assertThat(rows.used)
        .containsKeys("two-shots-sentinel", "staggered-direct", "copy-engines-reduce");
  }
}
