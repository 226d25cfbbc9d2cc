// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/** Fused all-reduces on the host device. */
@Tag("jdk")
@OnRanks(seconds = 180)
class FusedHostTest {
  private static final CollectivesOptions REPRODUCIBLE =
      CollectivesOptions.DEFAULT.withReproducible(true);

  private final FusedRows fused = new FusedRows();

  @Test
  @OnRanks(3)
  void shouldProduceIdenticalRowsAtAnyPosition(LocalRank rank) {
    fused.check(rank, CollectivesOptions.DEFAULT.withThreads(2), 264, 1, 2, 64);
    fused.check(rank, CollectivesOptions.DEFAULT, 4096, 3);
    assertThat(fused.used).containsOnly(SeparateEpilogue.NAME);
  }

  @Test
  @OnRanks(hosts = 2)
  void shouldProduceIdenticalRowsBetweenHosts(LocalRank rank) {
    fused.check(rank, REPRODUCIBLE, 264, 1, 2, 300);
  }

  /** Hierarchical adds in an order by host, which does not depend on size or position. */
  @Test
  @OnRanks(hosts = 3)
  void shouldProduceIdenticalRowsIfHierarchicalAddsByHost(LocalRank rank) {
    CollectivesOptions byHosts = REPRODUCIBLE.withAlgorithm(Collective.ALL_REDUCE, "hierarchical");
    Collectives collectives = lane(rank, byHosts);
    DeviceBuffer x = rank.device().allocate(1 << 20);
    assertThat(collectives.algorithmFor(sum(x, 8))).isEqualTo("hierarchical");
    float[] first = null;
    // Above 128 KiB the ranks of a rail divide each share.
    for (int rows : new int[] {1, 3, 100, 2000}) {
      FloatView view = FloatView.of(x, BFLOAT16).slice(0, 128L * rows);
      for (int row = 0; row < rows; row++) {
        view.slice(128L * row, 128).put(content(rank.rank()));
      }
      collectives.allReduce(view, SUM).block(FusedRows.LONG);
      for (int row = 0; row < rows; row += Math.max(1, rows / 7)) {
        float[] got = view.slice(128L * row, 128).toArray();
        first = first == null ? got : first;
        assertThat(got).as("row %d of %d", row, rows).isEqualTo(first);
      }
    }
    rank.awaitAll();
  }

  private static float[] content(int rank) {
    float[] row = new float[128];
    for (int i = 0; i < row.length; i++) {
      row[i] = (float) Math.sin(31 * rank + i) * (1 + i % 5);
    }
    return row;
  }

  private static CollectiveCall sum(DeviceBuffer x, long count) {
    return CollectiveCall.allReduce(x, x, count, BFLOAT16, SUM);
  }

  @Test
  @OnRanks(value = 2, hosts = 2)
  void shouldChooseAllPairsInsteadOfRingIfReproducible(LocalRank rank) {
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
  }

  @Test
  @OnRanks(value = 1, hosts = 2)
  void shouldRefuseToOpenIfOnlySomeRanksAreReproducible(LocalRank rank) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withReproducible(rank.rank() == 0);
    CompletableFuture<Collectives> opening = Collectives.create(rank.communicator(), options);
    fails(opening, InvalidUsage.class, "reproducible=true");
  }

  private static String chosen(LocalRank rank, CollectivesOptions options) {
    try (Collectives collectives = lane(rank, options);
        DeviceBuffer x = rank.device().allocate(8 << 20)) {
      String name = collectives.algorithmFor(sum(x, x.size() / 2));
      rank.awaitAll();
      return name;
    }
  }

  @Test
  void shouldApplyAHostEpilogueToEachRow(LocalRank rank) {
    DeviceBuffer x = rank.device().allocate(4 * 8 * Float.BYTES);
    DeviceBuffer out = rank.device().allocate(4 * Float.BYTES);
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
    rank.collectives().allReduce(x, 4, 8, FLOAT32, sumOfRow).block();
    assertThat(sums.toArray()).containsExactly(2 * 28, 2 * 92, 2 * 156, 2 * 220);
  }

  @Test
  @OnRanks(1)
  void shouldRefuseInvalidFusedCalls(LocalRank rank) {
    DeviceBuffer x = rank.device().allocate(1 << 10);
    DeviceBuffer small = rank.device().allocate(16);
    DeviceBuffer weight = rank.device().allocate(32);
    AddRmsNorm norm = new AddRmsNorm(x.slice(256, 256), weight, 1e-5f, 0, x, small);
    Collectives collectives = rank.collectives();
    refuses(() -> collectives.allReduce(x, 1, 9, FLOAT32, norm), "hidden=9", "a multiple of 4");
    refuses(
        () -> collectives.allReduce(x, 1, 8, DataType.INT32, norm), "FLOAT16, BFLOAT16, FLOAT32");
    fails(
        collectives.allReduce(x, 4, 8, FLOAT32, norm),
        InvalidUsage.class,
        "the normOut takes 128 bytes, the buffer has 16");
    refuses(() -> new AddRmsNorm(x, x, 0, 0, x, x), "epsilon");
    FloatView view = FloatView.of(x);
    refuses(
        () -> collectives.allReduceAddRmsNorm(view, view, view.slice(0, 7), 1e-5f, 0, view, view),
        "the weight is one row");
  }

  @Test
  @OnRanks(1)
  void shouldRefuseOutputsThatOverlapOtherRows(LocalRank rank) {
    DeviceBuffer memory = rank.device().allocate(1 << 10);
    DeviceBuffer input = memory.slice(0, 256);
    DeviceBuffer residual = memory.slice(256, 256);
    DeviceBuffer weight = memory.slice(512, 128);
    DeviceBuffer free = memory.slice(640, 384);
    DeviceBuffer scales = free.slice(368, 8);
    AddRmsNorm norm = new AddRmsNorm(residual, weight, 1e-5f, 0, residual, input);
    AddRmsNorm.Quantization right = new AddRmsNorm.WithRowScales(free.slice(0, 64), scales);
    completes(run(rank, input, norm.withQuantization(right, true)));

    for (DeviceBuffer out : List.of(input, residual, weight, memory.slice(248, 64))) {
      AddRmsNorm one = norm.withQuantization(new AddRmsNorm.WithScale(out, 1), false);
      assertOverlap(rank, input, one, "the quantised output and the ");
      AddRmsNorm perRow =
          norm.withQuantization(new AddRmsNorm.WithRowScales(free.slice(0, 64), out), false);
      assertOverlap(rank, input, perRow, "the row scales and the ");
    }
    DeviceBuffer both = free.slice(0, 72);
    AddRmsNorm.Quantization crossed = new AddRmsNorm.WithRowScales(both, both.slice(60, 8));
    AddRmsNorm mixed = norm.withQuantization(crossed, true);
    assertOverlap(rank, input, mixed, "the row scales and the quantised output overlap");
    AddRmsNorm.Quantization kept = new AddRmsNorm.WithScale(free.slice(192, 64), 1);
    AddRmsNorm away = new AddRmsNorm(residual, weight, 1e-5f, 0, null, free, kept);
    assertOverlap(rank, input, away, "the quantised output and the normOut overlap");

    for (DeviceBuffer out : List.of(memory.slice(16, 256), memory.slice(272, 256))) {
      AddRmsNorm shifted = new AddRmsNorm(residual, weight, 1e-5f, 0, null, out);
      assertOverlap(rank, input, shifted, "the normOut and the ");
      AddRmsNorm sums = new AddRmsNorm(residual, weight, 1e-5f, 0, out, input);
      assertOverlap(rank, input, sums, "the residualOut and the ");
    }
    AddRmsNorm twice = new AddRmsNorm(residual, weight, 1e-5f, 0, input, input);
    assertOverlap(rank, input, twice, "the normOut and the residualOut overlap");
  }

  /** Not all algorithms would read such rows before the sums replace the input. */
  @Test
  @OnRanks(1)
  void shouldRefuseRowsThatOverlapTheInput(LocalRank rank) {
    DeviceBuffer memory = rank.device().allocate(1 << 10);
    DeviceBuffer input = memory.slice(0, 256);
    DeviceBuffer residual = memory.slice(256, 256);
    DeviceBuffer weight = memory.slice(512, 128);
    DeviceBuffer out = memory.slice(640, 256);
    for (DeviceBuffer rows : List.of(input, memory.slice(128, 256))) {
      AddRmsNorm added = new AddRmsNorm(rows, weight, 1e-5f, 0, null, out);
      assertOverlap(rank, input, added, "the residual and the input overlap");
      AddRmsNorm weighed = new AddRmsNorm(residual, rows, 1e-5f, 0, null, out);
      assertOverlap(rank, input, weighed, "the weight and the input overlap");
    }
  }

  private static Mono<Void> run(LocalRank rank, DeviceBuffer input, AddRmsNorm norm) {
    return rank.collectives().allReduce(input, 2, 32, FLOAT32, norm);
  }

  private static void assertOverlap(
      LocalRank rank, DeviceBuffer input, AddRmsNorm norm, String problem) {
    fails(run(rank, input, norm), InvalidUsage.class, "rank 0", problem, "its own memory");
  }

  @Test
  void shouldKeepAnEpiloguesBuffersInACapturedPipeline(LocalRank rank) {
    DeviceBuffer x = rank.device().allocate(64);
    DeviceBuffer residual = rank.device().allocate(64);
    DeviceBuffer weight = rank.device().allocate(64);
    DeviceBuffer out = rank.device().allocate(64);
    for (int i = 0; i < 16; i++) {
      FloatView.of(x).put(i, 1);
      FloatView.of(weight).put(i, i);
    }
    AddRmsNorm norm = new AddRmsNorm(residual, weight, 1e-6f, 0, null, out);
    CapturedPipeline captured =
        rank.collectives().pipeline().allReduce(x, 1, 16, FLOAT32, norm).capture();
    weight.close();
    captured.run().block(FusedRows.LONG);
    assertThat(FloatView.of(out).get(7)).isBetween(6.999f, 7.001f);
    captured.close();
    rank.awaitAll();
    x.close();
    residual.close();
    out.close();
  }
}
