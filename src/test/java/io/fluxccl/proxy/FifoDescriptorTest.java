// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.proxy.FifoDescriptor.HANDLE_LENGTH;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class FifoDescriptorTest {
  @ParameterizedTest
  @ValueSource(ints = {0, -1, -512, 3, 511, 513, 1 << 25, Integer.MIN_VALUE, Integer.MAX_VALUE})
  void shouldRefuseWhenSizeIsNoPowerOfTwoInRange(int size) {
    DirectMemoryDevice device = new DirectMemoryDevice();

    assertRefused(() -> new Fifo(device, size), "size=" + size);
    assertThat(device.openBuffers()).isZero();
  }

  @Test
  void shouldNotOverflowWhenTheRingIsLargest() {
    int size = FifoDescriptor.MAX_SIZE;

    assertThat(FifoDescriptor.pinnedLength(size)).isEqualTo(128 + 16 * size);
    assertThat(FifoDescriptor.slotOffset(Long.MAX_VALUE, size)).isEqualTo(16 * (size - 1));
  }

  @Property
  void shouldMapEachPositionOfALapToADifferentSlot(
      @ForAll @IntRange(max = 10) int sizeShift, @ForAll @LongRange long position) {
    int size = 1 << sizeShift;

    int slot = FifoDescriptor.slotOffset(position, size);

    assertThat(slot).isBetween(0, 16 * (size - 1)).isEqualTo((int) (position % size) * 16);
    assertThat(FifoDescriptor.slotOffset(position + size, size)).isEqualTo(slot);
  }

  @Property
  void shouldDistinguishConsecutiveLapsForAnyPayload(
      @ForAll long second, @ForAll @LongRange(max = Long.MAX_VALUE - 1) long lap) {
    long stored = ProxyTrigger.commit(second, lap);

    assertThat(ProxyTrigger.isCommitted(stored, lap)).isTrue();
    assertThat(ProxyTrigger.isCommitted(stored, lap + 1)).isFalse();
    assertThat(ProxyTrigger.payload(stored)).isEqualTo(second & Long.MAX_VALUE);
    assertThat(stored >>> 63).isEqualTo((lap & 1) ^ 1);
  }

  @Test
  void shouldNotReadATriggerFromZeroedMemory() {
    assertThat(ProxyTrigger.isCommitted(0, 0)).isFalse();
  }

  @Property
  void shouldDecodeAnEncodedHandle(
      @ForAll long triggers,
      @ForAll long head,
      @ForAll long tail,
      @ForAll long tailCache,
      @ForAll long abort,
      @ForAll @IntRange(max = 24) int sizeShift) {
    DirectMemoryDevice device = new DirectMemoryDevice();
    try (var memory = device.allocatePinned(2 * HANDLE_LENGTH)) {
      new FifoDeviceHandle(triggers, head, tail, tailCache, abort, 1 << sizeShift)
          .writeHandle(memory.buffer(), 0);
      FifoDeviceHandle.at(memory.deviceAddress()).writeHandle(memory.buffer(), HANDLE_LENGTH);

      UnsafeBuffer expected = new UnsafeBuffer(new byte[HANDLE_LENGTH]);
      expected.putLong(0, triggers);
      expected.putLong(8, head);
      expected.putLong(16, tail);
      expected.putLong(24, tailCache);
      expected.putLong(32, abort);
      expected.putInt(40, 1 << sizeShift);
      assertThat(new UnsafeBuffer(memory.buffer(), 0, HANDLE_LENGTH)).isEqualTo(expected);
      assertThat(new UnsafeBuffer(memory.buffer(), HANDLE_LENGTH, HANDLE_LENGTH))
          .isEqualTo(expected);
    }
  }

  @Test
  void shouldRefuseAHandleOfSizeZero() {
    DirectMemoryDevice device = new DirectMemoryDevice();
    try (var memory = device.allocatePinned(HANDLE_LENGTH)) {
      assertRefused(() -> FifoDeviceHandle.at(memory.deviceAddress()), "size=0");
    }
  }
}
