// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.IntView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import jcuda.driver.JCudaDriver;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Device memory, on a GPU and on the fake driver. */
@Timeout(120)
abstract class CudaMemoryContract {
  private final CudaDeviceOptions options;
  private final CudaDevice device;

  CudaMemoryContract(CudaMemoryKind kind) {
    options = CudaDeviceOptions.DEFAULT.withMemory(kind);
    device = CudaDevice.open(0, options);
  }

  @AfterEach
  void close() {
    device.close();
    Awaitility.await().untilAsserted(() -> assertThat(device.context().users()).isZero());
  }

  CudaDevice device() {
    return device;
  }

  static long free(CudaDevice device) {
    device.makeCurrent();
    long[] free = new long[1];
    device.context().check(JCudaDriver.cuMemGetInfo(free, new long[1]), "cuMemGetInfo");
    return free[0];
  }

  private static byte[] pattern(int length) {
    byte[] bytes = new byte[length];
    for (int i = 0; i < length; i++) {
      bytes[i] = (byte) (i * 7 + (i >> 13));
    }
    return bytes;
  }

  private static byte[] bytesOf(CudaBuffer buffer, long offset, int length) {
    byte[] bytes = new byte[length];
    buffer.download(offset, bytes);
    return bytes;
  }

  @Test
  void shouldAllocateZeroedMemoryOfAnySize() {
    for (int round = 0; round < 3; round++) {
      for (int size : new int[] {1, 127, 4096, (1 << 20) - 1, 1 << 20, (4 << 20) + 5}) {
        try (CudaBuffer buffer = device.allocate(size)) {
          assertThat(buffer.address() % 128).isZero();
          assertThat(bytesOf(buffer, 0, size)).containsOnly(0);
          byte[] ones = new byte[size];
          java.util.Arrays.fill(ones, (byte) 1);
          buffer.upload(0, ones); // for the next round
        }
      }
    }
  }

  @Test
  void shouldLetSmallBuffersShareAnAllocationAndLargeOnesHaveTheirOwn() {
    List<CudaBuffer> small = IntStream.range(0, 100).mapToObj(i -> device.allocate(1000)).toList();
    assertThat(small.stream().map(CudaBuffer::allocation).distinct()).hasSize(1);
    assertThat(small.stream().map(CudaBuffer::address).distinct()).hasSize(100);
    assertThat(small.get(0).allocation().size()).isEqualTo(2 << 20);
    try (CudaBuffer large = device.allocate(1 << 20);
        CudaBuffer other = device.allocate(1 << 20)) {
      assertThat(large.allocation()).isNotSameAs(other.allocation());
      assertThat(large.allocationOffset()).isZero();
      assertThat(large.allocation().size()).isEqualTo(2 << 20);
    }
    small.forEach(CudaBuffer::close);
  }

  @Test
  void shouldUploadAndDownloadRangesOfByteBuffers() {
    byte[] bytes = pattern((5 << 20) + 3);
    try (CudaBuffer buffer = device.allocate(bytes.length + 100)) {
      ByteBuffer direct = ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
      buffer.upload(50, direct.asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN));
      assertThat(bytesOf(buffer, 50, bytes.length)).isEqualTo(bytes);
      ByteBuffer window =
          ByteBuffer.wrap(new byte[64]).order(ByteOrder.LITTLE_ENDIAN).position(8).limit(24);
      buffer.slice(50, bytes.length).download(1_048_570, window);
      assertThat(window.position()).isEqualTo(24);
      for (int i = 0; i < 64; i++) {
        assertThat(window.array()[i]).isEqualTo(i < 8 || i >= 24 ? 0 : bytes[1_048_562 + i]);
      }
      assertThat(bytesOf(buffer, 0, 50)).containsOnly(0);
      assertThatThrownBy(() -> buffer.upload(101, bytes)).isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> buffer.download(-1, ByteBuffer.allocate(1)))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> buffer.slice(bytes.length, 101)).isInstanceOf(InvalidUsage.class);
      buffer.slice(0, 10).close();
      assertThat(buffer.isClosed()).isFalse();
    }
  }

  @Test
  void shouldReadAndWriteElementsThroughViews() {
    try (FloatView x = FloatView.of(device.allocate(6), DataType.FLOAT16);
        IntView y = device.allocateInts(2, 50_000)) {
      x.put(new float[] {1, 2.5f});
      x.put(2, 4);
      assertThat(x.toArray()).containsExactly(1, 2.5f, 4);
      int[] values = IntStream.range(0, 100_000).toArray();
      y.put(values);
      assertThat(y.toArray()).isEqualTo(values);
      assertThat(y.get(1, 3)).isEqualTo(50_003);
      assertThatThrownBy(x::asByteBuffer)
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining(device.description());
      assertThatThrownBy(() -> x.buffer().upload(0, ByteBuffer.allocate(4)))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("ByteOrder.nativeOrder()");
    }
  }

  @Test
  void shouldFreeAllBuffers() {
    long before = free(device);
    List<CudaBuffer> buffers = new ArrayList<>();
    for (int i = 1; i < 10; i++) {
      buffers.add(device.allocate(i << 20));
    }
    assertThat(free(device)).isLessThan(before);
    buffers.forEach(CudaBuffer::close);
    buffers.forEach(CudaBuffer::close);
    Awaitility.await().untilAsserted(() -> assertThat(free(device)).isEqualTo(before));
    assertThatThrownBy(() -> buffers.get(0).retain()).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> buffers.get(0).download(0, ByteBuffer.allocate(1)))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldReportOutOfMemoryIfTheSizeIsTooLarge() {
    assertThatThrownBy(() -> device.allocate(1L << 50))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("CUDA_ERROR_OUT_OF_MEMORY")
        .hasMessageContaining("GPU 0");
    assertThatThrownBy(() -> device.allocate(0)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.allocatePinned(0)).isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldGivePinnedMemoryThatBothSidesSee() {
    CudaStream stream = device.createStream("pinned");
    for (int size : new int[] {8, 1000, 100_000}) {
      try (CudaPinnedBuffer pinned = device.allocatePinned(size)) {
        assertThat(pinned.deviceAddress() % 64).isZero();
        assertThat(pinned.size()).isEqualTo(size);
        for (int i = 0; i < size; i++) {
          assertThat(pinned.buffer().getByte(i)).isZero();
        }
        stream.launch(StreamKernels.STORE, 1, 1, KernelArgs.of(pinned, 77L));
        assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
        assertThat(pinned.buffer().getLongAcquire(0)).isEqualTo(77);
        pinned.buffer().setMemory(0, size, (byte) 5);
      }
    }
  }

  @Test
  void shouldNotWaitForOtherStreams() {
    StreamKernels.load(device);
    CudaStream stream = device.createStream("spins");
    try (CudaPinnedBuffer gate = device.allocatePinned(8)) {
      stream.launch(StreamKernels.SPIN, 1, 1, KernelArgs.of(gate, 1L));
      CudaBuffer small = device.allocate(5000);
      small.upload(0, new byte[] {1, 2, 3});
      assertThat(bytesOf(small, 0, 4)).containsExactly(1, 2, 3, 0);
      small.close();
      device.createStream("another").close();
      assertThat(stream.completion()).isNotDone();
      gate.buffer().putLongRelease(0, 1); // pairs with the acquire in the kernel
    }
  }

  @Test
  void shouldStayReadableAfterItsDeviceIsClosed() {
    CudaBuffer buffer = device.allocate(100);
    buffer.upload(0, pattern(100));
    device.close();
    assertThat(bytesOf(buffer, 0, 100)).isEqualTo(pattern(100));
    assertThatThrownBy(() -> device.allocate(1)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.allocatePinned(1)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.createStream("s")).isInstanceOf(InvalidUsage.class);
    assertThat(device.context().users()).isPositive();
    buffer.close();
  }

  @Test
  void shouldMapMemoryOfItsOwnProcessByLookingItUp() {
    try (CudaDevice other = CudaDevice.open(0, options)) {
      CudaBuffer buffer = device.allocate(1 << 20);
      CudaMemoryName name = CudaMemoryName.decode(buffer.allocation().name().encode());
      CudaMapping first = other.map(name);
      CudaMapping second = device.map(name);
      assertThat(second).isSameAs(first); // of the GPU
      assertThat(first.address()).isEqualTo(buffer.address());
      buffer.close();
      assertThat(buffer.allocation().users()).isEqualTo(1);
      first.release();
      second.release();
      Awaitility.await().untilAsserted(() -> assertThat(buffer.allocation().users()).isZero());
      assertThatThrownBy(() -> device.map(name))
          .isInstanceOf(DeviceFailure.class)
          .hasMessageContaining("closed");
    }
  }

  @Test
  void shouldReachTheMemoryOfAnotherGpu() {
    assumeTrue(CudaDriver.count() > 1, "needs 2 GPUs, there is 1");
    assumeTrue(device.canAccessPeer(1), "needs GPUs that reach each other's memory");
    try (CudaDevice other = CudaDevice.open(1, options);
        CudaBuffer there = other.allocate(1 << 20);
        CudaBuffer here = device.allocate(1 << 20)) {
      CudaStream stream = device.createStream("peer");
      assertThatThrownBy(() -> stream.copy(here, 0, there, 0, 8))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("not of CudaDevice(index=0");
      assertThatThrownBy(() -> stream.launch(StreamKernels.STORE, 1, 1, KernelArgs.of(there, 4L)))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("enablePeerAccess(1)");
      CudaMapping mapping = device.map(there.allocation().name());
      stream.launch(StreamKernels.STORE, 1, 1, KernelArgs.of(there, 4L));
      stream.copyAsync(here.address(), mapping.address(), 8);
      stream.writeValue64(mapping.address() + 8, 6);
      assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
      assertThat(bytesOf(here, 0, 2)).containsExactly(4, 0);
      assertThat(bytesOf(there, 8, 2)).containsExactly(6, 0);
      mapping.release();
    }
  }

  @Test
  void shouldKeepAMappingUsableIfItsOwnerIsKilled() throws Exception {
    try (ProcessRank owner = TestJvms.start(MemoryOwnerProcess.class, options.memory().name());
        CudaBuffer copy = device.allocate(1 << 20)) {
      CudaMapping mapping =
          device.map(CudaMemoryName.decode(HexFormat.of().parseHex(owner.readLine())));
      owner.kill();
      CudaStream stream = device.createStream("orphan");
      stream.writeValue64(mapping.address(), 0x0102030405060708L);
      stream.copyAsync(copy.address(), mapping.address(), 1 << 20);
      assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
      assertThat(bytesOf(copy, 0, 8)).containsExactly(8, 7, 6, 5, 4, 3, 2, 1);
      assertThat(bytesOf(copy, 8, (1 << 20) - 8)).containsOnly(MemoryOwnerProcess.FILL);
      mapping.release();
    }
  }

  @Test
  void shouldMapMemoryOfAnotherProcessOnce() throws Exception {
    CudaMemoryName name;
    try (ProcessRank owner = TestJvms.start(MemoryOwnerProcess.class, options.memory().name())) {
      name = CudaMemoryName.decode(HexFormat.of().parseHex(owner.readLine()));
      CudaMapping mapping = device.map(name);
      assertThat(device.map(name)).isSameAs(mapping);
      assertThat(mapping.users()).isEqualTo(2);
      try (CudaBuffer copy = device.allocate(1 << 20)) {
        CudaStream stream = device.createStream("map");
        stream.copyAsync(copy.address(), mapping.address(), 1 << 20);
        assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
        assertThat(bytesOf(copy, 0, 1 << 20)).containsOnly(MemoryOwnerProcess.FILL);
      }
      mapping.release();
      mapping.release();
      assertThat(device.context().mappings.open).isEmpty();
      assertThatThrownBy(mapping::release).isInstanceOf(InvalidUsage.class);
      device.map(name).release(); // maps the memory again
    }
    // Until this process unmaps it, the driver still accepts the name.
    Awaitility.await()
        .untilAsserted(
            () ->
                assertThatThrownBy(() -> device.map(name).release())
                    .isInstanceOf(DeviceFailure.class));
  }

  @Test
  void shouldMapMemoryAgainWhileItIsUnmapped() throws Exception {
    try (ProcessRank owner = TestJvms.start(MemoryOwnerProcess.class, options.memory().name());
        CudaBuffer copy = device.allocate(8)) {
      CudaMemoryName name = CudaMemoryName.decode(HexFormat.of().parseHex(owner.readLine()));
      CudaStream stream = device.createStream("again");
      for (int round = 0; round < 500; round++) {
        CudaMapping mapping =
            device.map(name); // while the deferred-free thread unmaps the previous one
        if (round % 100 == 0) {
          stream.copyAsync(copy.address(), mapping.address(), 8);
          assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
        }
        mapping.release();
      }
    }
  }

  @Test
  void shouldMapNoMoreOfAnotherProcessThanThereIs() throws Exception {
    try (ProcessRank owner = TestJvms.start(MemoryOwnerProcess.class, options.memory().name())) {
      byte[] honest = HexFormat.of().parseHex(owner.readLine());
      byte[] lie = honest.clone();
      long size = CudaMemoryName.decode(honest).size();
      ByteBuffer.wrap(lie).order(ByteOrder.LITTLE_ENDIAN).putLong(24, 2 * size);
      CudaMemoryName claimed = CudaMemoryName.decode(lie);
      assertThat(claimed.size()).isEqualTo(2 * size);
      long before = free(device);
      assertThatThrownBy(() -> device.map(claimed))
          .isInstanceOf(
              options.memory() == CudaMemoryKind.PLAIN ? InvalidUsage.class : DeviceFailure.class)
          .hasMessageContaining(String.valueOf(2 * size));
      assertThat(device.context().mappings.open).isEmpty();
      assertThat(free(device)).isEqualTo(before);
      device.map(CudaMemoryName.decode(honest)).release();
    }
  }
}
