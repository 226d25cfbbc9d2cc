// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Fused all-reduces on emulated GPUs. */
@EmulatedGpus
@Tag("any-order")
@OnRanks(seconds = 180)
class FusedEmulatedTest {
  private static final CollectivesOptions DEFAULT = CollectivesOptions.DEFAULT;

  private final FusedRows rows = new FusedRows();

  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 3})
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldProduceIdenticalRowsAtAnyPosition(int nRanks, LocalRank rank) {
    rows.check(rank, DEFAULT, 264, 1, 2, 3, 7, 33);
    rows.check(rank, DEFAULT, 1032, 5);
    assertThat(rows.used).containsOnly("fused-one-shot", "fused-two-shots", SeparateEpilogue.NAME);
  }

  /** Each thread processes several words of a row. */
  @Test
  void shouldDoLongRows(LocalRank rank) {
    rows.check(rank, DEFAULT, 8192, 1);
    rows.check(rank, DEFAULT, 16384, 2);
  }

  /** Warps on their own do the first count of two ranks, a block for each row the second one. */
  @Test
  void shouldProduceIdenticalRowsByWarpsAndByBlocks(LocalRank rank) {
    rows.check(rank, DEFAULT, 4088, 3, 12);
    rows.check(rank, DEFAULT, 8184, 3, 7);
  }

  @Test
  @OnRanks(8)
  void shouldReduceManyRowsOnEightRanks(LocalRank rank) {
    rows.check(rank, DEFAULT, 128, 1, 17);
  }

  @Test
  @OnRanks(1)
  void shouldDoTheRowsOfASingleRank(LocalRank rank) {
    rows.check(rank, DEFAULT, 264, 1, 9);
    assertThat(rows.used).containsOnly(SeparateEpilogue.NAME);
  }

  /** Ranks of two hosts: by algorithms that add in rank order or by host. */
  @Test
  @OnRanks(hosts = 2)
  void shouldProduceIdenticalRowsBetweenHosts(LocalRank rank) {
    rows.check(rank, DEFAULT.withReproducible(true), 264, 1, 40);
    assertThat(rows.used).containsOnly(SeparateEpilogue.NAME);
  }

  @ParameterizedTest
  @ValueSource(strings = {"fused-one-shot", "fused-two-shots"})
  @OnRanks(3)
  void shouldTimeOutOnAllRanksIfARankDoesNotCall(String algorithm, LocalRank rank) {
    CollectivesOptions options =
        DEFAULT
            .withTimeout(Duration.ofSeconds(1))
            .withSetupTimeout(FusedRows.LONG)
            .withAlgorithm(Collective.FUSED_ALL_REDUCE, algorithm);
    Collectives collectives = lane(rank, options);
    DeviceBuffer x = rank.device().allocate(16 << 10);
    DeviceBuffer residual = rank.device().allocate(16 << 10);
    DeviceBuffer weight = rank.device().allocate(256);
    AddRmsNorm norm = new AddRmsNorm(residual, weight, 1, 0, null, x);
    CollectiveCall call = CollectiveCall.fusedAllReduce(x, 64, 64, DataType.FLOAT32, norm);
    if (rank.rank() != 1) {
      assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
      fails(collectives.run(call), Timeout.class, "fused-all-reduce rows=64 hidden=64");
    }
    failsJob(rank, Timeout.class);
  }
}
