// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.concurrent.TimeUnit;
import jcuda.Pointer;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.JCudaDriver;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Memory that an engine has allocated, on a GPU and on the fake driver. */
@Timeout(120)
abstract class ForeignMemoryContract {
  private final CudaDevice device = CudaDevice.open(0);
  private final EngineMemory engine = new EngineMemory(device);

  @AfterEach
  void close() {
    engine.close();
    device.close();
    Awaitility.await().untilAsserted(() -> assertThat(device.context().users()).isZero());
  }

  CudaDevice device() {
    return device;
  }

  private static byte[] bytesOf(CudaBuffer buffer, long offset, int length) {
    byte[] bytes = new byte[length];
    buffer.download(offset, bytes);
    return bytes;
  }

  @ParameterizedTest
  @EnumSource
  void shouldWrapAPartOfAnAllocationAndFreeNothing(EngineMemory.Kind kind) {
    assumeTrue(engine.has(kind), "JCuda or the driver can't allocate it here");
    long address = engine.tensor(kind, 3 << 20);
    CudaBuffer buffer = device.wrap(address, 3 << 20);
    assertThat(buffer.address()).isEqualTo(address);
    assertThat(buffer.size()).isEqualTo(3 << 20);
    assertThat(buffer.device()).isSameAs(device);
    byte[] pattern = EngineOwnerProcess.pattern();
    buffer.upload(0, pattern);
    long free = CudaMemoryContract.free(device);
    assertThat(buffer.unshareableReason().isEmpty()).isEqualTo(kind.isShareable);
    buffer.close();
    assertThatThrownBy(buffer::retain).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(buffer::unshareableReason).isInstanceOf(InvalidUsage.class);
    Awaitility.await().untilAsserted(() -> assertThat(buffer.allocation().users()).isZero());
    assertThat(CudaMemoryContract.free(device)).isEqualTo(free);
    try (CudaBuffer again = device.wrap(address, 3 << 20)) {
      assertThat(bytesOf(again, 0, pattern.length)).isEqualTo(pattern);
      again.slice(8, 16).upload(0, new byte[] {1, 2, 3});
      assertThat(bytesOf(again, 8, 4)).containsExactly(1, 2, 3, pattern[11]);
    }
  }

  @Test
  void shouldGiveTheReasonIfMemoryCannotBeShared() {
    try (CudaBuffer pool = engine.allocate(EngineMemory.Kind.POOL, 4096)) {
      assertThat(pool.unshareableReason())
          .hasValueSatisfying(
              why -> assertThat(why).contains("pool").contains("cuMemPoolExportToShareableHandle"));
      assertThatThrownBy(() -> pool.allocation().name()).isInstanceOf(DeviceFailure.class);
    }
    CUdeviceptr managed = new CUdeviceptr();
    device.context().check(JCudaDriver.cuMemAllocManaged(managed, 4096, 1), "cuMemAllocManaged");
    try (CudaBuffer buffer = device.wrap(managed, 4096)) {
      buffer.upload(0, new byte[] {7});
      assertThat(bytesOf(buffer, 0, 1)).containsExactly(7);
      assertThat(buffer.unshareableReason())
          .hasValueSatisfying(why -> assertThat(why).contains("managed"));
    }
    device.makeCurrent();
    JCudaDriver.cuMemFree(managed);
  }

  @Test
  void shouldRefuseToWrapAddressesOutsideGpuMemory() {
    long address = engine.malloc(2 << 20);
    assertThatThrownBy(() -> device.wrap(address + 4096, 2 << 20))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("ends 4096 bytes before");
    assertThatThrownBy(() -> device.wrap(0, 8)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.wrap(address, 0)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.wrap(address, -1)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.wrap(address, Long.MAX_VALUE)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> device.wrap(4096, 8))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("the driver knows no memory there");
    assertThatThrownBy(() -> device.wrap(Pointer.to(new float[4]), 16))
        .isInstanceOf(InvalidUsage.class);
    try (CudaPinnedBuffer pinned = device.allocatePinned(64)) {
      assertThatThrownBy(() -> device.wrap(pinned.deviceAddress(), 64))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("memory of the host");
    }
  }

  @Test
  void shouldRefuseMemoryOfAnotherGpu() {
    assumeTrue(CudaDriver.count() > 1, "needs 2 GPUs, there is 1");
    try (CudaDevice other = CudaDevice.open(1);
        EngineMemory there = new EngineMemory(other)) {
      long address = there.malloc(2 << 20);
      assertThatThrownBy(() -> device.wrap(address, 64))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("memory of GPU 1");
      other.wrap(address, 64).close();
    }
  }

  @Test
  void shouldTakePointersOfJcuda() {
    device.makeCurrent();
    CUdeviceptr pointer = new CUdeviceptr();
    device.context().check(JCudaDriver.cuMemAlloc(pointer, 4096), "cuMemAlloc");
    try (CudaBuffer whole = device.wrap(pointer, 4096);
        CudaBuffer part = device.wrap(pointer.withByteOffset(1024), 512)) {
      assertThat(part.address()).isEqualTo(whole.address() + 1024);
      part.upload(0, new byte[] {5});
      assertThat(bytesOf(whole, 1024, 1)).containsExactly(5);
      assertThatThrownBy(() -> device.wrap(pointer.withByteOffset(1024), 4 << 20))
          .isInstanceOf(InvalidUsage.class);
    }
    device.makeCurrent();
    JCudaDriver.cuMemFree(pointer);
  }

  @Test
  void shouldWorkIfTheApplicationEnablesJcudaExceptions() {
    JCudaDriver.setExceptionsEnabled(true);
    try (CudaBuffer segment = engine.allocate(EngineMemory.Kind.LARGE_BLOCK, 3 << 20)) {
      assertThat(segment.unshareableReason()).isEmpty();
      assertThatThrownBy(() -> device.wrap(4096, 8)).isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> device.wrap(segment.address(), 64 << 20))
          .isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> device.wrapStream(1)).isInstanceOf(InvalidUsage.class);
    } finally {
      JCudaDriver.setExceptionsEnabled(false);
    }
  }

  @Test
  void shouldNotShareMemoryThatItsOwnerFreedTooEarly() {
    device.makeCurrent();
    CUdeviceptr pointer = new CUdeviceptr();
    device.context().check(JCudaDriver.cuMemAlloc(pointer, 4 << 20), "cuMemAlloc");
    CudaBuffer buffer = device.wrap(pointer, 4 << 20);
    JCudaDriver.cuMemFree(pointer);
    assertThatThrownBy(buffer::unshareableReason)
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("freed by its owner");
    CUdeviceptr next = new CUdeviceptr(); // may have the same address
    device.context().check(JCudaDriver.cuMemAlloc(next, 4 << 20), "cuMemAlloc");
    assertThatThrownBy(() -> buffer.allocation().name()).isInstanceOf(InvalidUsage.class);
    buffer.close();
    device.makeCurrent();
    JCudaDriver.cuMemFree(next);
  }

  @ParameterizedTest
  @EnumSource
  void shouldBeMappedByAnotherProcess(EngineMemory.Kind kind) throws Exception {
    assumeTrue(kind.isShareable && engine.has(kind), "it can't be shared here");
    try (ProcessRank owner = TestJvms.start(EngineOwnerProcess.class, kind.name());
        CudaBuffer copy = device.allocate(EngineOwnerProcess.SIZE);
        CudaBuffer last = device.allocate(8)) {
      last.upload(0, new byte[] {1, 2, 3, 4, 5, 6, 7, 8});
      String[] said = owner.readLine().split(" ");
      CudaMapping mapping = device.map(CudaMemoryName.decode(HexFormat.of().parseHex(said[0])));
      long tensor = mapping.address() + Long.parseLong(said[1]);
      CudaStream stream = device.createStream("maps");
      stream.copyAsync(copy.address(), tensor, EngineOwnerProcess.SIZE);
      // By a copy: the driver refuses cuStreamWriteValue64 on a pool of another process.
      stream.copyAsync(tensor + EngineOwnerProcess.SIZE - 8, last.address(), 8);
      assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
      assertThat(
              Arrays.equals(
                  bytesOf(copy, 0, EngineOwnerProcess.SIZE), EngineOwnerProcess.pattern()))
          .isTrue();
      owner.sendLine("");
      assertThat(owner.readLine()).isEqualTo("0102030405060708");
      mapping.release();
      Awaitility.await().untilAsserted(() -> assertThat(mapping.users()).isZero());
      stream.close();
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldBeReachedByAnotherGpuOfTheProcess(EngineMemory.Kind kind) {
    assumeTrue(CudaDriver.count() > 1, "needs 2 GPUs, there is 1");
    assumeTrue(kind.isShareable && engine.has(kind), "it can't be shared here");
    try (CudaDevice other = CudaDevice.open(1);
        CudaBuffer buffer = engine.allocate(kind, EngineOwnerProcess.SIZE);
        CudaBuffer copy = other.allocate(EngineOwnerProcess.SIZE)) {
      buffer.upload(0, EngineOwnerProcess.pattern());
      CudaMapping mapping = other.map(buffer.allocation().name());
      CudaStream stream = other.createStream("reaches");
      stream.copyAsync(
          copy.address(), mapping.address() + buffer.allocationOffset(), EngineOwnerProcess.SIZE);
      assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
      assertThat(bytesOf(copy, 0, EngineOwnerProcess.SIZE)).isEqualTo(EngineOwnerProcess.pattern());
      mapping.release();
      Awaitility.await().untilAsserted(() -> assertThat(buffer.allocation().users()).isEqualTo(1));
    }
  }
}
