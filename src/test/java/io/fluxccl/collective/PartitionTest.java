// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;

class PartitionTest {
  @Property
  void shouldCutEveryCountIntoWholeCacheLines(
      @ForAll @LongRange(min = 0, max = 1L << 40) long count,
      @ForAll @IntRange(min = 1, max = 4096) int parts,
      @ForAll DataType type) {
    long chunk = Partition.chunkElements(count, type, parts);
    assertThat(chunk * type.size() % 64).isZero();
    // Enough for all, and not a cache line more than needed.
    assertThat(chunk).isGreaterThanOrEqualTo((count + parts - 1) / parts);
    assertThat(chunk * type.size()).isLessThan((count + parts - 1) / parts * type.size() + 64);
  }
}
