// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ChannelTriggerTest {
  @Property
  void shouldUnpackEveryPackedField(
      @ForAll @LongRange(max = 0xFFFF_FFFFL) long size,
      @ForAll @LongRange(max = 0xFFFF_FFFFL) long sourceOffset,
      @ForAll @LongRange(max = 0xFFFF_FFFFL) long destinationOffset,
      @ForAll @IntRange(max = 511) int sourceMemory,
      @ForAll @IntRange(max = 511) int destinationMemory,
      @ForAll @IntRange(min = 1, max = 7) int type,
      @ForAll @IntRange(max = 1023) int id) {
    long first = ChannelTrigger.first(size, sourceOffset);
    long second =
        ChannelTrigger.second(destinationOffset, sourceMemory, destinationMemory, type, id);

    assertThat(second & ProxyTrigger.COMMIT_BIT).isZero();
    for (long stored : new long[] {second, second | ProxyTrigger.COMMIT_BIT}) {
      assertThat(ChannelTrigger.size(first)).isEqualTo(size);
      assertThat(ChannelTrigger.sourceOffset(first)).isEqualTo(sourceOffset);
      assertThat(ChannelTrigger.destinationOffset(stored)).isEqualTo(destinationOffset);
      assertThat(ChannelTrigger.sourceMemory(stored)).isEqualTo(sourceMemory);
      assertThat(ChannelTrigger.destinationMemory(stored)).isEqualTo(destinationMemory);
      assertThat(ChannelTrigger.type(stored)).isEqualTo(type);
      assertThat(ChannelTrigger.id(stored)).isEqualTo(id);
    }
  }

  @Test
  void shouldPackFieldsAtTheirLayoutPositions() {
    assertThat(ChannelTrigger.first(0x1111_1111L, 0x2222_2222L)).isEqualTo(0x2222_2222_1111_1111L);
    assertThat(ChannelTrigger.second(5, 0, 0, ChannelTrigger.DATA, 0)).isEqualTo(1L << 50 | 5);
    assertThat(ChannelTrigger.second(0, 1, 0, ChannelTrigger.SIGNAL, 0))
        .isEqualTo(1L << 51 | 1L << 32);
    assertThat(ChannelTrigger.second(0, 0, 1, ChannelTrigger.FLUSH, 1))
        .isEqualTo(1L << 52 | 1L << 41 | 1L << 53);
  }

  @ParameterizedTest
  @CsvSource({"-1, 0", "4294967296, 0", "0, -1", "0, 4294967296"})
  void shouldRefuseWhenFirstWordIsOutOfRange(long size, long sourceOffset) {
    assertRefused(
        () -> ChannelTrigger.first(size, sourceOffset),
        "size=" + size + " sourceOffset=" + sourceOffset,
        "4294967295");
  }

  @ParameterizedTest
  @CsvSource({
    "-1, 0, 0, 1, 0",
    "4294967296, 0, 0, 1, 0",
    "0, -1, 0, 1, 0",
    "0, 512, 0, 1, 0",
    "0, 0, -1, 1, 0",
    "0, 0, 512, 1, 0",
    "0, 0, 0, 0, 0",
    "0, 0, 0, 8, 0",
    "0, 0, 0, -1, 0",
    "0, 0, 0, 1, -1",
    "0, 0, 0, 1, 1024"
  })
  void shouldRefuseWhenSecondWordIsOutOfRange(
      long offset, int sourceMemory, int destinationMemory, int type, int id) {
    assertRefused(
        () -> ChannelTrigger.second(offset, sourceMemory, destinationMemory, type, id),
        "type=" + type + " id=" + id,
        "0 to 511",
        "0 to 1023");
  }

  @ParameterizedTest
  @CsvSource({
    "SIZE, 4294967296, size=4294967296",
    "SOURCE_OFFSET, -1, source offset=18446744073709551615",
    "DESTINATION_OFFSET, 4294967296, destination offset=4294967296",
    "SOURCE_MEMORY, 512, source memory=512",
    "DESTINATION_MEMORY, 512, destination memory=512"
  })
  void shouldNameTheArgumentIfItDoesNotFit(
      ChannelTrigger.Argument argument, long value, String text) {
    long second = ChannelTrigger.refused(argument, 1023);

    assertThat(ChannelTrigger.type(second)).isZero();
    assertThat(ChannelTrigger.id(second)).isEqualTo(1023);
    assertThat(ChannelTrigger.refusal(value, second))
        .hasMessageContaining("channel 1023")
        .hasMessageContaining(text + ";")
        .hasMessageContaining("split the transfer");
  }

  @ParameterizedTest
  @CsvSource({"0", "6", "4294967295"})
  void shouldNameTheTypeIfATriggerOfType0NamesNoArgument(long word) {
    assertThat(ChannelTrigger.refusal(0, word)).hasMessageContaining("type 0");
  }

  @Test
  void shouldNameEveryFieldWhenShown() {
    long first = ChannelTrigger.first(1024, 8);
    long second = ChannelTrigger.second(16, 3, 4, ChannelTrigger.DATA | ChannelTrigger.SIGNAL, 42);

    assertThat(ChannelTrigger.toString(first, second))
        .isEqualTo("type=DATA|SIGNAL channel=42 size=1024 source=3+8 destination=4+16");
    assertThat(ChannelTrigger.toString(0, 0)).startsWith("type=NONE");
  }
}
