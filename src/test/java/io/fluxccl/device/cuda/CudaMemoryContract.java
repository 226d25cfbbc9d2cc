// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.MemoryContract;
import io.fluxccl.testkit.ProcessRank;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.IntStream;
import jcuda.driver.JCudaDriver;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

/** Device memory, on a GPU and on the fake driver. */
abstract class CudaMemoryContract extends MemoryContract {
  private static final int SIZE = MemoryOwnerProcess.SIZE;

  final CudaDevice gpu = (CudaDevice) device;
  private final CudaStream stream = (CudaStream) first;
  private final CudaMemoryKind memory;

  CudaMemoryContract(CudaMemoryKind memory) {
    super(new CudaTestDevice(memory));
    this.memory = memory;
  }

  static long free(CudaDevice device) {
    device.makeCurrent();
    long[] free = new long[1];
    device.context().check(JCudaDriver.cuMemGetInfo(free, new long[1]), "cuMemGetInfo");
    return free[0];
  }

  @Test
  void shouldLetSmallBuffersShareAnAllocationAndLargeOnesHaveTheirOwn() {
    List<CudaBuffer> small = IntStream.range(0, 100).mapToObj(i -> gpu.allocate(1000)).toList();
    assertThat(small.stream().map(CudaBuffer::allocation).distinct()).hasSize(1);
    assertThat(small.stream().map(CudaBuffer::address).distinct()).hasSize(100);
    assertThat(small.get(0).allocation().size()).isEqualTo(2 << 20);
    try (CudaBuffer large = gpu.allocate(1 << 20);
        CudaBuffer other = gpu.allocate(1 << 20)) {
      assertThat(large.allocation()).isNotSameAs(other.allocation());
      assertThat(large.allocationOffset()).isZero();
      assertThat(large.allocation().size()).isEqualTo(2 << 20);
    }
    small.forEach(CudaBuffer::close);
  }

  @Test
  void shouldRefuseDirectAccessThroughViews() {
    try (FloatView x = FloatView.of(device.allocate(6), DataType.FLOAT16)) {
      x.put(new float[] {1, 2.5f});
      x.put(2, 4);
      assertThat(x.toArray()).containsExactly(1, 2.5f, 4);
      assertRefused(x::asByteBuffer, device.description());
      assertRefused(() -> x.buffer().upload(0, ByteBuffer.allocate(4)), "ByteOrder.nativeOrder()");
    }
  }

  @Test
  void shouldFreeAllBuffers() {
    long before = free(gpu);
    List<CudaBuffer> buffers = new ArrayList<>();
    for (int i = 1; i < 10; i++) {
      buffers.add(gpu.allocate(i << 20));
    }
    assertThat(free(gpu)).isLessThan(before);
    buffers.forEach(CudaBuffer::close);
    buffers.forEach(CudaBuffer::close);
    Awaitility.await().until(() -> free(gpu) == before);
    assertRefused(() -> buffers.get(0).retain());
    assertRefused(() -> buffers.get(0).download(0, ByteBuffer.allocate(1)));
  }

  @Test
  void shouldReportOutOfMemoryIfTheSizeIsTooLarge() {
    assertThrows(
        DeviceFailure.class, () -> device.allocate(1L << 50), "CUDA_ERROR_OUT_OF_MEMORY", "GPU 0");
  }

  /** Memory is freed while all GPUs are idle; there may be one only. */
  @Test
  void shouldWaitForMemoryThatIsFreedAfterWorkInFlight() throws Exception {
    long most = (free(gpu) / 2 >> 20) + 64 << 20;
    CudaBuffer buffer = gpu.allocate(most);
    try (CudaDevice other = (CudaDevice) kind.open(CudaDriver.count() - 1)) {
      List<StreamBlocker> work = new ArrayList<>(List.of(StreamBlocker.of(gpu, stream)));
      for (int i = 0; i < 8; i++) {
        work.add(StreamBlocker.of(other, other.createStream("work " + i)));
      }
      buffer.close();
      CompletableFuture<CudaBuffer> next = CompletableFuture.supplyAsync(() -> gpu.allocate(most));
      try {
        assertThatThrownBy(() -> next.get(200, TimeUnit.MILLISECONDS))
            .isInstanceOf(TimeoutException.class);
      } finally {
        work.forEach(StreamBlocker::close);
      }
      try (CudaBuffer found = next.get(30, TimeUnit.SECONDS)) {
        found.allocation().name(); // fails if another GPU has it
      }
    }
  }

  @Test
  void shouldReachTheMemoryOfAnotherGpu() throws Exception {
    assumeTrue(CudaDriver.count() > 1, "needs 2 GPUs, there is 1");
    assumeTrue(gpu.canAccessPeer(1), "needs GPUs that reach each other's memory");
    try (CudaDevice other = (CudaDevice) kind.open(1);
        CudaBuffer there = other.allocate(1 << 20);
        CudaBuffer here = gpu.allocate(1 << 20)) {
      assertRefused(() -> stream.copy(here, 0, there, 0, 8), "not of CudaDevice(index=0");
      assertRefused(
          () -> stream.launch(StreamKernels.STORE, 1, 1, KernelArgs.of(there, 4L)),
          "enablePeerAccess(1)");
      CudaMapping mapping = gpu.map(there.allocation().name());
      stream.launch(StreamKernels.STORE, 1, 1, KernelArgs.of(there, 4L));
      stream.copyAsync(here.address(), mapping.address(), 8);
      stream.writeValue64(mapping.address() + 8, 6);
      await(stream.completion());
      assertThat(longOf(here)).isEqualTo(4);
      assertThat(longOf(there.slice(8, 8))).isEqualTo(6);
      mapping.release();
    }
  }

  @Test
  void shouldMapMemoryOfAnotherProcessOnce() throws Exception {
    CudaMemoryName name;
    try (ProcessRank owner = MemoryOwnerProcess.start(memory);
        CudaBuffer copy = gpu.allocate(SIZE)) {
      name = MemoryOwnerProcess.name(owner);
      CudaMapping mapping = gpu.map(name);
      assertThat(gpu.map(name)).isSameAs(mapping);
      assertThat(mapping.users()).isEqualTo(2);
      stream.copyAsync(copy.address(), mapping.address(), SIZE);
      await(stream.completion());
      assertThat(bytesOf(copy)).isEqualTo(MemoryOwnerProcess.pattern());
      mapping.release();
      mapping.release();
      assertThat(gpu.context().mappings).isEmpty();
      assertRefused(mapping::release);
      gpu.map(name).release(); // maps the memory again
    }
    // Until this process unmaps it, the driver still accepts the name.
    Awaitility.await()
        .untilAsserted(() -> assertThrows(DeviceFailure.class, () -> gpu.map(name).release()));
  }

  @Test
  void shouldMapMemoryAgainWhileItIsUnmapped() throws Exception {
    try (ProcessRank owner = MemoryOwnerProcess.start(memory);
        CudaBuffer copy = gpu.allocate(8)) {
      CudaMemoryName name = MemoryOwnerProcess.name(owner);
      for (int round = 0; round < 500; round++) {
        // The deferred-free thread may still unmap the previous one.
        CudaMapping mapping = gpu.map(name);
        if (round % 100 == 0) {
          stream.copyAsync(copy.address(), mapping.address(), 8);
          await(stream.completion());
        }
        mapping.release();
      }
    }
  }

  @Test
  void shouldMapNoMoreOfAnotherProcessThanThereIs() {
    try (ProcessRank owner = MemoryOwnerProcess.start(memory)) {
      CudaMemoryName honest = MemoryOwnerProcess.name(owner);
      byte[] lie = honest.encode();
      long size = honest.size();
      ByteBuffer.wrap(lie).order(ByteOrder.LITTLE_ENDIAN).putLong(24, 2 * size);
      CudaMemoryName claimed = CudaMemoryName.decode(lie);
      assertThat(claimed.size()).isEqualTo(2 * size);
      long before = free(gpu);
      Class<? extends FluxCclException> refusal =
          memory == CudaMemoryKind.PLAIN ? InvalidUsage.class : DeviceFailure.class;
      assertThrows(refusal, () -> gpu.map(claimed), String.valueOf(2 * size));
      assertThat(gpu.context().mappings).isEmpty();
      assertThat(free(gpu)).isEqualTo(before);
      gpu.map(honest).release();
    }
  }
}
