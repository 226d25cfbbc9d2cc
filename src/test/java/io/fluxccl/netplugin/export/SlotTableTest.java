// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

class SlotTableTest {
  private final SlotTable<String> table = new SlotTable<>("words");

  @Test
  void shouldFindAnObjectByItsNumberWhateverTheUsersBitsAre() {
    long number = table.add("a");
    assertThat(number).isPositive();
    assertThat(table.get(number)).isEqualTo("a");
    assertThat(table.get(number | 1)).isEqualTo("a");
    assertThat(table.get(number | (1L << SlotTable.USER_BITS) - 1)).isEqualTo("a");
  }

  @Test
  void shouldNotGiveANumberTwice() {
    Set<Long> numbers = new HashSet<>();
    for (int i = 0; i < 1000; i++) {
      long number = table.add("a");
      assertThat(numbers.add(number)).isTrue();
      assertThat(table.remove(number)).isEqualTo("a");
      assertRefused(() -> table.get(number), "words");
      assertRefused(() -> table.remove(number));
    }
  }

  @Test
  void shouldRefuseNumbersOfNoSlot() {
    for (long number : new long[] {0, 1, -1, 77, Long.MAX_VALUE, Long.MIN_VALUE}) {
      assertRefused(() -> table.get(number));
    }
  }

  @Test
  void shouldGrow() {
    long[] numbers = new long[500];
    for (int i = 0; i < numbers.length; i++) {
      numbers[i] = table.add("word " + i);
    }
    for (int i = 0; i < numbers.length; i++) {
      assertThat(table.get(numbers[i])).isEqualTo("word " + i);
    }
  }
}
