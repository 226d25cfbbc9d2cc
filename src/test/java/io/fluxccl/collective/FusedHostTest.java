// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Fused all-reduces on the host device. */
@Tag("jdk")
class FusedHostTest {
  @Test
  void shouldProduceIdenticalRowsAtAnyPosition() {
    FusedRows rows = new FusedRows();
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          FusedRows.LONG,
          rank -> {
            rows.check(rank, CollectivesOptions.DEFAULT.withThreads(2), 264, 1, 2, 64);
            rows.check(rank, CollectivesOptions.DEFAULT, 4096, 3);
          });
    }
    assertThat(rows.used).containsOnlyKeys(SeparateEpilogue.NAME);
  }

  @Test
  void shouldProduceIdenticalRowsBetweenHosts() {
    FusedRows rows = new FusedRows();
    CollectivesOptions reproducible = CollectivesOptions.DEFAULT.withReproducible(true);
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(FusedRows.LONG, rank -> rows.check(rank, reproducible, 264, 1, 2, 300));
    }
  }

  /** Hierarchical adds in an order by host, which does not depend on size or position. */
  @Test
  void shouldProduceIdenticalRowsIfHierarchicalAddsByHost() {
    CollectivesOptions byHosts =
        CollectivesOptions.DEFAULT
            .withReproducible(true)
            .withAlgorithm(Collective.ALL_REDUCE, "hierarchical");
    try (LocalRanks ranks = LocalRanks.ofHosts(3, 2)) {
      ranks.run(
          FusedRows.LONG,
          rank -> {
            try (Collectives collectives = Collectives.create(rank.communicator(), byHosts).join();
                DeviceBuffer x = rank.device().allocate(1 << 20)) {
              assertThat(collectives.algorithmFor(sum(x, 8))).isEqualTo("hierarchical");
              float[] first = null;
              // Above 128 KiB the ranks of a rail divide each share.
              for (int rows : new int[] {1, 3, 100, 2000}) {
                FloatView view = FloatView.of(x, DataType.BFLOAT16).slice(0, 128L * rows);
                for (int row = 0; row < rows; row++) {
                  view.slice(128L * row, 128).put(content(rank.rank()));
                }
                collectives.allReduce(view, ReduceOp.SUM).block(FusedRows.LONG);
                for (int row = 0; row < rows; row += Math.max(1, rows / 7)) {
                  float[] got = view.slice(128L * row, 128).toArray();
                  first = first == null ? got : first;
                  assertThat(got).as("row %d of %d", row, rows).isEqualTo(first);
                }
              }
              rank.awaitAll();
            }
          });
    }
  }

  private static float[] content(int rank) {
    float[] row = new float[128];
    for (int i = 0; i < row.length; i++) {
      row[i] = (float) Math.sin(31 * rank + i) * (1 + i % 5);
    }
    return row;
  }

  private static CollectiveCall sum(DeviceBuffer x, long count) {
    return CollectiveCall.allReduce(x, x, count, DataType.BFLOAT16, ReduceOp.SUM);
  }

  @Test
  void shouldChooseAllPairsInsteadOfRingIfReproducible() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      ranks.run(
          rank -> {
            for (String wanted : List.of("ring", "hierarchical", "all-pairs")) {
              CollectivesOptions options =
                  CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, wanted);
              assertThat(chosen(rank, options)).isEqualTo(wanted);
              assertThat(chosen(rank, options.withReproducible(true)))
                  .isEqualTo(wanted.equals("ring") ? "all-pairs" : wanted);
            }
            CollectivesOptions large = CollectivesOptions.DEFAULT;
            assertThat(chosen(rank, large)).isNotEqualTo("all-pairs");
            assertThat(chosen(rank, large.withReproducible(true))).isEqualTo("all-pairs");
          });
    }
  }

  @Test
  void shouldRefuseToOpenIfOnlySomeRanksAreReproducible() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1)) {
      ranks.run(
          FusedRows.LONG,
          rank ->
              assertThat(
                      Collectives.create(
                          rank.communicator(),
                          CollectivesOptions.DEFAULT.withReproducible(rank.rank() == 0)))
                  .failsWithin(FusedRows.LONG)
                  .withThrowableThat()
                  .withCauseInstanceOf(InvalidUsage.class)
                  .withMessageContaining("reproducible=true"));
    }
  }

  private static String chosen(LocalRank rank, CollectivesOptions options) {
    try (Collectives collectives = Collectives.create(rank.communicator(), options).join();
        DeviceBuffer x = rank.device().allocate(8 << 20)) {
      String name = collectives.algorithmFor(sum(x, x.size() / 2));
      rank.awaitAll();
      return name;
    }
  }

  @Test
  void shouldApplyAHostEpilogueToEachRow() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (DeviceBuffer x = rank.device().allocate(4 * 8 * Float.BYTES);
                DeviceBuffer out = rank.device().allocate(4 * Float.BYTES)) {
              FloatView view = FloatView.of(x);
              FloatView sums = FloatView.of(out);
              for (int i = 0; i < 32; i++) {
                view.put(i, i);
              }
              HostEpilogue sumOfRow =
                  new HostEpilogue(
                      "sum of row",
                      (row, values) -> {
                        float sum = 0;
                        for (int i = 0; i < 8; i++) {
                          sum += values[i];
                        }
                        sums.put(row, sum);
                      },
                      List.of(out));
              rank.collectives().allReduce(x, 4, 8, DataType.FLOAT32, sumOfRow).block();
              assertThat(sums.toArray()).containsExactly(2 * 28, 2 * 92, 2 * 156, 2 * 220);
            }
          });
    }
  }

  @Test
  void shouldRefuseInvalidFusedCalls() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            try (DeviceBuffer x = rank.device().allocate(1 << 10);
                DeviceBuffer small = rank.device().allocate(16)) {
              AddRmsNorm norm = new AddRmsNorm(x, x, 1e-5f, 0, x, small);
              Collectives collectives = rank.collectives();
              assertThatThrownBy(() -> collectives.allReduce(x, 1, 9, DataType.FLOAT32, norm))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("hidden=9")
                  .hasMessageContaining("a multiple of 4");
              assertThatThrownBy(() -> collectives.allReduce(x, 1, 8, DataType.INT32, norm))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("FLOAT16, BFLOAT16, FLOAT32");
              assertThatThrownBy(
                      () -> collectives.allReduce(x, 4, 8, DataType.FLOAT32, norm).block())
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("the normOut takes 128 bytes, the buffer has 16");
              assertThatThrownBy(() -> new AddRmsNorm(x, x, 0, 0, x, x))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("epsilon");
              FloatView view = FloatView.of(x);
              assertThatThrownBy(
                      () ->
                          collectives.allReduceAddRmsNorm(
                              view, view, view.slice(0, 7), 1e-5f, 0, view, view))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("the weight is one row");
            }
          });
    }
  }

  @Test
  void shouldRefuseDifferentEpiloguesInCheckedMode() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (DeviceBuffer x = rank.device().allocate(1 << 10)) {
              float epsilon = rank.rank() == 0 ? 1e-5f : 1e-6f;
              AddRmsNorm norm = new AddRmsNorm(x, x, epsilon, 0, null, x);
              CollectivesOptions checked = CollectivesOptions.DEFAULT.withChecks(true);
              Collectives collectives = Collectives.create(rank.communicator(), checked).join();
              assertThatThrownBy(
                      () -> collectives.allReduce(x, 4, 8, DataType.FLOAT32, norm).block())
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("add-rms-norm(epsilon=1.0E-5 weightBias=0.0)")
                  .hasMessageContaining("add-rms-norm(epsilon=1.0E-6 weightBias=0.0)");
            }
          });
    }
  }

  @Test
  void shouldKeepAnEpiloguesBuffersInACapturedPipeline() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(64);
            DeviceBuffer weight = rank.device().allocate(64);
            DeviceBuffer out = rank.device().allocate(64);
            for (int i = 0; i < 16; i++) {
              FloatView.of(x).put(i, 1);
              FloatView.of(weight).put(i, i);
            }
            AddRmsNorm norm = new AddRmsNorm(x, weight, 1e-6f, 0, null, out);
            CapturedPipeline captured =
                rank.collectives().pipeline().allReduce(x, 1, 16, DataType.FLOAT32, norm).capture();
            weight.close();
            captured.run().block(FusedRows.LONG);
            assertThat(FloatView.of(out).get(7)).isBetween(6.999f, 7.001f);
            captured.close();
            rank.awaitAll();
            x.close();
            out.close();
          });
    }
  }
}
