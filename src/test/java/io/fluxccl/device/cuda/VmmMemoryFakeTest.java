// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DeviceFailure;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testkit.ProcessRank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

@FakeCuda
@RequiresNativeLibrary
class VmmMemoryFakeTest extends CudaMemoryContract {
  VmmMemoryFakeTest() {
    super(CudaMemoryKind.VMM);
  }

  /** Returns the bin of a key in a ConcurrentHashMap with 16 bins. */
  private static int bin(Object key) {
    int hash = key.hashCode();
    return (hash ^ hash >>> 16) & 15;
  }

  @Test
  void shouldReleaseAMappingWhileAnotherOwnerIsSuspended() throws Exception {
    try (ProcessRank owner = MemoryOwnerProcess.start(CudaMemoryKind.VMM)) {
      CudaMemoryName silent = MemoryOwnerProcess.name(owner);
      owner.stop();
      List<CudaBuffer> buffers = new ArrayList<>();
      CudaBuffer last;
      do {
        last = gpu.allocate(1 << 20);
        buffers.add(last);
      } while (bin(last.allocation().id()) != bin(silent.id()));
      CudaMapping mapping = gpu.map(last.allocation().name());
      List<Thread> thread = new ArrayList<>();
      CompletableFuture<CudaMapping> asking =
          CompletableFuture.supplyAsync(
              () -> gpu.map(silent),
              task -> {
                thread.add(new Thread(task, "asks"));
                thread.get(0).start();
              });
      Awaitility.await().until(() -> asks(thread.get(0)));
      mapping.release();
      assertThat(asking).as("the map, which has asked for seconds").isNotDone();
      owner.resume();
      asking.handle((mapped, failure) -> mapped == null ? null : release(mapped)).join();
      assertThat(gpu.context().mappings).isEmpty();
      buffers.forEach(CudaBuffer::close);
    }
  }

  private static boolean asks(Thread thread) {
    return Arrays.stream(thread.getStackTrace())
        .anyMatch(frame -> frame.getMethodName().equals("receiveDescriptor"));
  }

  private static CudaMapping release(CudaMapping mapping) {
    mapping.release();
    return mapping;
  }

  @Test
  void shouldMapOnceIfThreadsRequestConcurrently() throws Exception {
    try (ProcessRank owner = MemoryOwnerProcess.start(CudaMemoryKind.VMM)) {
      CudaMemoryName name = MemoryOwnerProcess.name(owner);
      for (int round = 0; round < 20; round++) {
        List<CudaMapping> mappings = ask(name).stream().map(CompletableFuture::join).toList();
        assertThat(mappings).containsOnly(mappings.get(0));
        assertThat(mappings.get(0).users()).isEqualTo(8);
        mappings.forEach(CudaMapping::release);
        assertThat(gpu.context().mappings).isEmpty();
      }
      owner.kill();
      for (CompletableFuture<CudaMapping> refused : ask(name)) {
        assertThat(refused)
            .failsWithin(Duration.ofSeconds(60))
            .withThrowableThat()
            .withCauseInstanceOf(DeviceFailure.class);
      }
      assertThat(gpu.context().mappings).isEmpty();
    }
  }

  /** Maps the name on eight threads at once. */
  private List<CompletableFuture<CudaMapping>> ask(CudaMemoryName name) {
    return IntStream.range(0, 8)
        .mapToObj(
            i ->
                CompletableFuture.supplyAsync(
                    () -> gpu.map(name), task -> new Thread(task, "maps").start()))
        .toList();
  }
}
