// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.MemoryContract;
import io.fluxccl.testkit.ResourceLeaks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("jdk")
class HostDeviceTest extends MemoryContract {
  HostDeviceTest() {
    super(new HostTestDevice());
  }

  private HostBuffer allocate(long size) {
    return (HostBuffer) device.allocate(size);
  }

  @Test
  void shouldReportItsKindIndexAndDescription() {
    try (HostDevice third = HostDevice.create(HostDeviceOptions.DEFAULT.withIndex(3))) {
      assertThat(third.kind()).isEqualTo(DeviceKind.HOST);
      assertThat(third.index()).isEqualTo(3);
      assertThat(third.description()).contains("cores").contains("MiB");
    }
    assertRefused(() -> HostDeviceOptions.DEFAULT.withIndex(-1));
    assertRefused(() -> HostDeviceOptions.DEFAULT.withName(" "));
  }

  @Test
  void shouldShareASegmentAmongSmallBuffersAndZeroThemEachTime() {
    List<HostBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      HostBuffer buffer = allocate(1 + i);
      assertThat(buffer.address() % 128).isZero();
      HostMemory.fill(buffer.address(), buffer.size(), (byte) 0xff);
      buffers.add(buffer);
    }
    SharedSegment shared = buffers.get(0).segment();
    assertThat(buffers).allMatch(buffer -> buffer.segment() == shared);
    buffers.forEach(HostBuffer::close);
    try (HostBuffer again = allocate(64)) {
      assertThat(again.segment()).isSameAs(shared);
      assertThat(again.segmentOffset()).isZero();
      assertThat(HostMemory.getLong(again.address())).isZero();
    }
  }

  @Test
  void shouldNotReuseMemoryIfAnotherProcessMayStillWriteToIt() {
    HostBuffer shared = allocate(128);
    SharedSegment theirs = SharedSegment.open(shared.segment().name());
    try {
      long place = theirs.address() + shared.segmentOffset();
      shared.close();
      try (HostBuffer next = allocate(128)) {
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
    HostBuffer first = allocate(60_000);
    List<HostBuffer> more = new ArrayList<>();
    while (more.isEmpty() || more.get(more.size() - 1).segment() == first.segment()) {
      more.add(allocate(60_000));
    }
    more.forEach(HostBuffer::close);
    assertThat(first.segment().users()).isEqualTo(1);
    first.close();
    assertThat(first.segment().users()).isZero();
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
