// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Fused all-reduces with their kernels on the CPU. */
@EmulatedGpus
@Tag("any-order")
class FusedEmulatedTest {
  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 3})
  void shouldProduceIdenticalRowsAtAnyPosition(int nRanks) {
    FusedRows rows = new FusedRows();
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      ranks.run(
          FusedRows.LONG,
          rank -> {
            rows.check(rank, CollectivesOptions.DEFAULT, 264, 1, 2, 3, 7, 33);
            rows.check(rank, CollectivesOptions.DEFAULT, 1032, 5);
          });
    }
    assertThat(rows.used)
        .containsOnlyKeys("fused-one-shot", "fused-two-shots", SeparateEpilogue.NAME);
  }

  /** Each thread processes several words of a row. */
  @Test
  void shouldDoLongRows() {
    FusedRows rows = new FusedRows();
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          FusedRows.LONG,
          rank -> {
            rows.check(rank, CollectivesOptions.DEFAULT, 8192, 1);
            rows.check(rank, CollectivesOptions.DEFAULT, 16384, 2);
          });
    }
  }

  @Test
  void shouldReduceManyRowsOnEightRanks() {
    FusedRows rows = new FusedRows();
    try (LocalRanks ranks = LocalRanks.onGpus(8)) {
      ranks.run(FusedRows.LONG, rank -> rows.check(rank, CollectivesOptions.DEFAULT, 128, 1, 17));
    }
  }

  @Test
  void shouldDoTheRowsOfASingleRank() {
    FusedRows rows = new FusedRows();
    try (LocalRanks ranks = LocalRanks.onGpus(1)) {
      ranks.run(FusedRows.LONG, rank -> rows.check(rank, CollectivesOptions.DEFAULT, 264, 1, 9));
    }
    assertThat(rows.used).containsOnlyKeys(SeparateEpilogue.NAME);
  }

  /** Ranks of two hosts: by algorithms that add in rank order or by host. */
  @Test
  void shouldProduceIdenticalRowsBetweenHosts() {
    FusedRows rows = new FusedRows();
    CollectivesOptions reproducible = CollectivesOptions.DEFAULT.withReproducible(true);
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 2)) {
      ranks.run(FusedRows.LONG, rank -> rows.check(rank, reproducible, 264, 1, 40));
    }
    assertThat(rows.used).containsOnlyKeys(SeparateEpilogue.NAME);
  }

  @ParameterizedTest
  @ValueSource(strings = {"fused-one-shot", "fused-two-shots"})
  void shouldTimeOutOnAllRanksIfARankDoesNotCall(String algorithm) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTimeout(Duration.ofSeconds(1))
            .withSetupTimeout(FusedRows.LONG)
            .withAlgorithm(Collective.FUSED_ALL_REDUCE, algorithm);
    try (LocalRanks ranks = LocalRanks.onGpus(3)) {
      ranks.run(
          FusedRows.LONG,
          rank -> {
            Collectives collectives = Collectives.create(rank.communicator(), options).join();
            DeviceBuffer x = rank.device().allocate(16 << 10);
            AddRmsNorm norm = new AddRmsNorm(x, x, 1, 0, null, x);
            CollectiveCall call = CollectiveCall.fusedAllReduce(x, 64, 64, DataType.FLOAT32, norm);
            if (rank.rank() != 1) {
              assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
              ParkingStepVerifier.create(collectives.run(call), FusedRows.LONG)
                  .expectErrorSatisfies(
                      e ->
                          assertThat(e)
                              .isInstanceOf(Timeout.class)
                              .hasMessageContaining("fused-all-reduce rows=64 hidden=64"))
                  .verify(FusedRows.LONG);
            }
            assertThat(rank.communicator().failed())
                .succeedsWithin(FusedRows.LONG)
                .isInstanceOf(Timeout.class);
          });
    }
  }
}
