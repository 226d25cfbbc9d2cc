// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DeviceFailure;
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
  private static final int SIZE = MemoryOwnerProcess.SIZE;

  private final CudaDevice device = CudaDevice.open(0);
  private final EngineMemory engine = new EngineMemory(device);

  @AfterEach
  void close() {
    engine.close();
    device.close();
    Awaitility.await().until(() -> device.context().users() == 0);
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
    long address = engine.tensor(kind, SIZE);
    CudaBuffer buffer = device.wrap(address, SIZE);
    assertThat(buffer.address()).isEqualTo(address);
    assertThat(buffer.size()).isEqualTo(SIZE);
    assertThat(buffer.device()).isSameAs(device);
    byte[] pattern = MemoryOwnerProcess.pattern();
    buffer.upload(0, pattern);
    long free = CudaMemoryContract.free(device);
    assertThat(buffer.unshareableReason().isEmpty()).isEqualTo(kind.isShareable);
    buffer.close();
    assertRefused(buffer::retain);
    assertRefused(buffer::unshareableReason);
    Awaitility.await().until(() -> buffer.allocation().users() == 0);
    assertThat(CudaMemoryContract.free(device)).isEqualTo(free);
    try (CudaBuffer again = device.wrap(address, SIZE)) {
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
      assertThrows(DeviceFailure.class, () -> pool.allocation().name());
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
    assertRefused(() -> device.wrap(address + 4096, 2 << 20), "ends 4096 bytes before");
    assertRefused(() -> device.wrap(0, 8));
    assertRefused(() -> device.wrap(address, 0));
    assertRefused(() -> device.wrap(address, -1));
    assertRefused(() -> device.wrap(address, Long.MAX_VALUE));
    assertRefused(() -> device.wrap(4096, 8), "the driver knows no memory there");
    assertRefused(() -> device.wrap(Pointer.to(new float[4]), 16));
    try (CudaPinnedBuffer pinned = device.allocatePinned(64)) {
      assertRefused(() -> device.wrap(pinned.deviceAddress(), 64), "memory of the host");
    }
  }

  @Test
  void shouldRefuseMemoryOfAnotherGpu() {
    assumeTrue(CudaDriver.count() > 1, "needs 2 GPUs, there is 1");
    try (CudaDevice other = CudaDevice.open(1);
        EngineMemory there = new EngineMemory(other)) {
      long address = there.malloc(2 << 20);
      assertRefused(() -> device.wrap(address, 64), "memory of GPU 1");
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
      assertRefused(() -> device.wrap(pointer.withByteOffset(1024), 4 << 20));
    }
    device.makeCurrent();
    JCudaDriver.cuMemFree(pointer);
  }

  @Test
  void shouldWorkIfTheApplicationEnablesJcudaExceptions() {
    JCudaDriver.setExceptionsEnabled(true);
    try (CudaBuffer segment = engine.allocate(EngineMemory.Kind.LARGE_BLOCK, SIZE)) {
      assertThat(segment.unshareableReason()).isEmpty();
      assertRefused(() -> device.wrap(4096, 8));
      assertRefused(() -> device.wrap(segment.address(), 64 << 20));
      assertRefused(() -> device.wrapStream(1));
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
    assertRefused(buffer::unshareableReason, "freed by its owner");
    CUdeviceptr next = new CUdeviceptr(); // may have the same address
    device.context().check(JCudaDriver.cuMemAlloc(next, 4 << 20), "cuMemAlloc");
    assertRefused(() -> buffer.allocation().name());
    buffer.close();
    device.makeCurrent();
    JCudaDriver.cuMemFree(next);
  }
}
