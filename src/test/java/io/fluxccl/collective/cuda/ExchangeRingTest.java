// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ExchangeRingTest {
  @ParameterizedTest
  @ValueSource(ints = {2, 3, 4, 5, 8, 9, 16})
  void shouldDivideMessagesIntoUnitsThatFitTheRing(int nRanks) {
    for (ExchangeRing ring :
        new ExchangeRing[] {ExchangeRing.ll8(128, nRanks), ExchangeRing.ll128(128, nRanks)}) {
      assertThat(Integer.bitCount(ring.slots())).isOne();
      assertThat(ring.length() % 128).isZero();
      assertThat(ring.units(ring.eagerBytes())).isLessThanOrEqualTo(ring.slots() / 2);
      assertThat(ring.units(0)).isZero();
      for (long bytes = 1; bytes < 1L << 32; bytes = bytes * 3 / 2 + 1) {
        long unit = (long) ring.rows(bytes) * ring.rowPayload();
        assertThat(ring.units(bytes) * unit).isBetween(bytes, bytes + unit - 1);
        // As many slots as half a ring may be in flight at once, and no two messages wait then.
        assertThat(ring.rows(bytes) == 1 && ring.units(bytes) > ring.slots() / 2)
            .isEqualTo(ring.maxRows() == 1 && bytes > ring.eagerBytes());
      }
    }
  }

  @Test
  void shouldCountTheUnitsOfBothMessagesOfAPair() {
    ExchangeRing ring = ExchangeRing.ll128(0, 4);
    long half = ring.slots() / 2L * ring.rowPayload();
    assertThat(ring.units(half)).isEqualTo(1024);
    assertThat(ring.units(half + 1)).isEqualTo(257);
    assertThat(new ExchangeParts().clear(ring).add(1, 0, half, 0, half + 1).maxUnits())
        .isEqualTo(1024);
    assertThat(new ExchangeParts().clear(ring).add(1, 0, half + 1, 0, half).maxUnits())
        .isEqualTo(1024);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "exchange_ring | FLUXCCL_ASSERT_SIZE(RingCounters, 1024);",
        "exchange_ring | FLUXCCL_ASSERT_OFFSET(RingCounters, nothing, 448);",
        "exchange_short | FLUXCCL_ASSERT_OFFSET(ShortExchange, parts, 64);",
        "exchange_short | FLUXCCL_ASSERT_SIZE(ShortExchange, 176);",
        "exchange_ring | kMaxShortParts = 2;",
        "exchange_units | kLinePayload = 120;",
        "exchange_units | kMaxRows = 4;"
      })
  void shouldHaveTheKernelsLayout(String header, String declaration) throws IOException {
    assertThat(Files.readString(Path.of("src/main/cuda/collectives", header + ".cuh")))
        .contains(declaration);
    assertThat(ExchangeRing.ll8(0, 2).length()).isEqualTo(1024 + 2L * 256 * (8 + 256));
    assertThat(ExchangeRing.ll8(0, 2).nothingOffset(0)).isEqualTo(448);
    assertThat(ExchangeRing.ll128(0, 2).slotSize()).isEqualTo(4 * 512);
    assertThat(ExchangeRing.ll128(0, 2).rowPayload()).isEqualTo(4 * 120);
  }
}
