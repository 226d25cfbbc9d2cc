// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.host.HostFamily.HostSet;
import io.fluxccl.collective.pipe.SlotRing;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("jdk")
class HostSetTest {
  @ParameterizedTest
  @CsvSource({"2, 8", "4, 8", "8, 8", "16, 2", "16, 4"})
  void shouldKeepTheSlotsOfSmallGroupsLarge(int nRanks, int nWorkers) {
    assertThat(HostSet.ringOf(nRanks, nWorkers).payloadBytes()).isEqualTo(32 << 10);
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 3, 16, 17, 31, 32, 33, 64, 100, 128, 255, 256, 300})
  void shouldTakeNoMoreMemoryForManyRanks(int nRanks) {
    SlotRing ring = HostSet.ringOf(nRanks, 1);
    assertThat(ring.payloadBytes() % 64).isZero();
    assertThat(ring.payloadBytes()).isBetween(192, 32 << 10);
    assertThat(nRanks * (nRanks * ring.bytes())).isLessThanOrEqualTo(520L << 20);
  }
}
