package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;

class PartitionTest {
  @Property
  void shouldCutEveryCountIntoPartsThatFitTheirSlots(
      @ForAll @LongRange(min = 0, max = 1L << 40) long count,
      @ForAll @IntRange(min = 1, max = 4096) int parts,
      @ForAll DataType type) {
    long room = Partition.maxChunkBytes(count * type.size(), parts);
    assertThat(room % 64).isZero();
    long end = 0;
    for (int part = 0; part < parts; part++) {
      long begin = Partition.begin(count, type, parts, part);
      long next = Partition.begin(count, type, parts, part + 1);
      assertThat(begin).isEqualTo(end);
      assertThat((next - begin) * type.size()).isBetween(0L, room);
      assertThat(begin == count || begin * type.size() % 64 == 0).isTrue();
      end = next;
    }
    assertThat(end).isEqualTo(count);
  }
}
