// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Buffers and pinned memory of any device. */
@Timeout(120)
public abstract class MemoryContract extends StreamScenario {
  protected MemoryContract(TestDevice kind) {
    super(kind);
  }

  @Test
  void shouldAllocateZeroedMemoryOfAnySize() {
    for (int round = 0; round < 3; round++) {
      for (int size : new int[] {1, 127, 4096, (1 << 20) - 1, 1 << 20, (4 << 20) + 5}) {
        try (DeviceBuffer buffer = device.allocate(size)) {
          assertThat(buffer.address() % 128).isZero();
          assertThat(bytesOf(buffer)).containsOnly(0);
          byte[] ones = new byte[size];
          Arrays.fill(ones, (byte) 1);
          buffer.upload(0, ones); // for the next round
        }
      }
    }
    assertRefused(() -> device.allocate(0));
  }

  @Test
  void shouldUploadAndDownloadRangesOfByteBuffers() {
    byte[] bytes = new byte[(5 << 20) + 3];
    new Random(1).nextBytes(bytes);
    DeviceBuffer buffer = device.allocate(bytes.length + 100);
    DeviceBuffer part = buffer.slice(50, bytes.length);
    ByteBuffer direct = ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
    buffer.upload(50, direct.asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN));
    assertThat(bytesOf(part)).isEqualTo(bytes);
    ByteBuffer back = ByteBuffer.allocateDirect(5).order(ByteOrder.LITTLE_ENDIAN);
    part.download(bytes.length - 5, back);
    assertThat(back.flip()).isEqualTo(direct.position(bytes.length - 5));
    ByteBuffer window =
        ByteBuffer.wrap(new byte[64]).order(ByteOrder.LITTLE_ENDIAN).position(8).limit(24);
    part.download(1_048_570, window);
    assertThat(window.position()).isEqualTo(24);
    for (int i = 0; i < 64; i++) {
      assertThat(window.array()[i]).isEqualTo(i < 8 || i >= 24 ? 0 : bytes[1_048_562 + i]);
    }
    assertThat(bytesOf(buffer.slice(0, 50))).containsOnly(0);
    assertRefused(() -> buffer.upload(101, bytes));
    assertRefused(() -> buffer.download(-1, ByteBuffer.allocate(1)));
    assertRefused(() -> buffer.slice(bytes.length, 101));
    assertRefused(() -> buffer.slice(-1, 1));
    assertThat(buffer.slice(buffer.size(), 0).size()).isZero();
    buffer.slice(0, 10).close();
    assertThat(buffer.isClosed()).isFalse();
    buffer.close();
    assertRefused(() -> buffer.download(0, ByteBuffer.allocate(1)));
  }

  @Test
  void shouldGivePinnedMemoryThatBothSidesSee() throws Exception {
    for (int size : new int[] {8, 129, 1000, 100_000}) {
      try (PinnedBuffer pinned = device.allocatePinned(size)) {
        assertThat(pinned.deviceAddress() % 64).isZero();
        assertThat(pinned.size()).isEqualTo(size);
        assertThat(pinned.buffer().capacity()).isEqualTo(size);
        for (int i = 0; i < size; i++) {
          assertThat(pinned.buffer().getByte(i)).isZero();
        }
        await(first.launch(kind.store, 1, 1, KernelArgs.of(pinned, 77L)).completion());
        assertThat(pinned.buffer().getLongAcquire(0)).isEqualTo(77);
        pinned.buffer().setMemory(0, size, (byte) 5);
      }
    }
    assertRefused(() -> device.allocatePinned(0));
  }

  @Test
  void shouldNotWaitForStreams() {
    hold(first);
    CompletableFuture<Void> held = first.completion();
    DeviceBuffer small = device.allocate(5000);
    small.upload(0, new byte[] {1, 2, 3});
    assertThat(bytesOf(small.slice(0, 4))).containsExactly(1, 2, 3, 0);
    small.close();
    second.close();
    assertThat(held).isNotDone();
  }

  @Test
  void shouldStayReadableAfterItsDeviceIsClosed() {
    DeviceBuffer buffer = device.allocate(100);
    buffer.upload(0, new byte[] {1, 2, 3});
    device.close();
    device.close();
    assertThat(bytesOf(buffer.slice(0, 4))).containsExactly(1, 2, 3, 0);
    assertRefused(() -> device.allocate(1));
    assertRefused(() -> device.allocatePinned(1));
    assertRefused(() -> device.createStream("s"));
    assertThat(first.completion()).isCompletedExceptionally();
    assertThat(kind.users(buffer)).isPositive();
    buffer.close();
    assertThat(kind.users(buffer)).isZero();
  }
}
