// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.testkit.ResourceLeaks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
@Tag("jdk")
class HostDeviceTest {
  private final HostDevice device = HostDevice.create();

  @AfterEach
  void close() {
    device.close();
  }

  @Test
  void shouldReportItsKindIndexAndDescription() {
    try (HostDevice third = HostDevice.create(HostDeviceOptions.DEFAULT.withIndex(3))) {
      assertThat(third.kind()).isEqualTo(DeviceKind.HOST);
      assertThat(third.index()).isEqualTo(3);
      assertThat(third.description()).contains("cores").contains("MiB");
    }
    assertThatThrownBy(() -> HostDeviceOptions.DEFAULT.withIndex(-1))
        .isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> HostDeviceOptions.DEFAULT.withName(" "))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldUploadAndDownloadHeapAndDirectBytes() {
    for (int size : new int[] {100, 100_000}) {
      try (HostBuffer buffer = device.allocate(size)) {
        ByteBuffer hello = StandardCharsets.UTF_8.encode("hello").order(ByteOrder.LITTLE_ENDIAN);
        buffer.upload(size - 5, hello.asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN));
        ByteBuffer back = ByteBuffer.allocateDirect(5).order(ByteOrder.LITTLE_ENDIAN);
        buffer.slice(size - 5, 5).download(0, back);
        assertThat(back.hasRemaining()).isFalse();
        assertThat(back.flip()).isEqualTo(hello);
        assertThatThrownBy(() -> buffer.upload(size - 4, hello)).isInstanceOf(InvalidUsage.class);
        assertThatThrownBy(() -> buffer.slice(size, 1)).isInstanceOf(InvalidUsage.class);
        assertThatThrownBy(() -> buffer.slice(-1, 1)).isInstanceOf(InvalidUsage.class);
        assertThat(buffer.slice(size, 0).size()).isZero();
        buffer.close();
        assertThatThrownBy(() -> buffer.download(0, ByteBuffer.allocate(1)))
            .isInstanceOf(InvalidUsage.class);
      }
    }
  }

  @Test
  void shouldShareASegmentAmongSmallBuffersAndZeroThemEachTime() {
    List<HostBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      HostBuffer buffer = device.allocate(1 + i);
      assertThat(buffer.address() % 128).isZero();
      HostMemory.fill(buffer.address(), buffer.size(), (byte) 0xff);
      buffers.add(buffer);
    }
    SharedSegment shared = buffers.get(0).segment();
    assertThat(buffers).allMatch(buffer -> buffer.segment() == shared);
    buffers.forEach(HostBuffer::close);
    try (HostBuffer again = device.allocate(64)) {
      assertThat(again.segment()).isSameAs(shared);
      assertThat(again.segmentOffset()).isZero();
      assertThat(HostMemory.getLong(again.address())).isZero();
    }
  }

  @Test
  void shouldNotReuseMemoryIfAnotherProcessMayStillWriteToIt() {
    HostBuffer shared = device.allocate(128);
    SharedSegment theirs = SharedSegment.open(shared.segment().name());
    try {
      long place = theirs.address() + shared.segmentOffset();
      shared.close();
      try (HostBuffer next = device.allocate(128)) {
        // The other process does not know yet that the buffer is closed.
        HostMemory.putLongRelease(place, 42);
        assertThat(HostMemory.getLong(next.address())).isZero();
      }
    } finally {
      theirs.release();
    }
  }

  @Test
  void shouldBeginAnotherSegmentWhenOneIsFullAndKeepTheOldUntilItsLastBuffer() {
    HostBuffer first = device.allocate(60_000);
    List<HostBuffer> more = new ArrayList<>();
    while (more.isEmpty() || more.get(more.size() - 1).segment() == first.segment()) {
      more.add(device.allocate(60_000));
    }
    more.forEach(HostBuffer::close);
    assertThat(first.segment().users()).isEqualTo(1);
    first.close();
    assertThat(first.segment().users()).isZero();
  }

  @Test
  void shouldAlignAndZeroPinnedMemory() {
    for (int size : new int[] {1, 8, 129, 10_000}) {
      try (PinnedBuffer pinned = device.allocatePinned(size)) {
        assertThat(pinned.deviceAddress() % 64).isZero();
        assertThat(pinned.size()).isEqualTo(size);
        assertThat(pinned.buffer().capacity()).isEqualTo(size);
        for (int i = 0; i < size; i++) {
          assertThat(pinned.buffer().getByte(i)).isZero();
        }
      }
    }
    assertThatThrownBy(() -> device.allocatePinned(0)).isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldRefuseWorkOnceClosedAndLeaveBuffersReadable() {
    HostBuffer buffer = device.allocate(8);
    HostStream stream = device.createStream("s");
    device.close();
    device.close();
    assertThatThrownBy(() -> device.allocate(8)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.allocatePinned(8)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.createStream("t")).isInstanceOf(InvalidUsage.class);
    assertThat(stream.completion()).isCompletedExceptionally();
    buffer.download(0, new byte[8]);
    buffer.close();
    assertThat(buffer.segment().users()).isZero();
  }

  @Test
  void shouldNotLeakAfterManyRounds() throws Exception {
    round();
    ResourceLeaks before = ResourceLeaks.snapshot();
    for (int i = 0; i < 100; i++) {
      round();
    }
    before.assertNone(Duration.ofSeconds(10));
  }

  private static void round() throws Exception {
    HostDevice device = HostDevice.create();
    HostBuffer large = device.allocate(100_000);
    HostBuffer small = device.allocate(100);
    HostStream stream = device.createStream("round");
    device.createStream("idle");
    HostKernel kernel = HostKernel.of("sync", (thread, args) -> thread.syncThreads());
    stream
        .launch(kernel, 1, 3, KernelArgs.NONE)
        .copy(large, 0, small, 0, 100)
        .completion()
        .get(60, TimeUnit.SECONDS);
    stream.launch(kernel, 1, 2, KernelArgs.NONE);
    large.close();
    small.close();
    device.close();
  }
}
