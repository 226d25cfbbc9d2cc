// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.device.DmaBuf;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Memory that is exported for other devices, on a GPU and on the fake driver. */
@Timeout(60)
abstract class DmaBufContract {
  private static Path file(DmaBuf dmaBuf) {
    return Path.of("/proc/self/fd/" + dmaBuf.descriptor());
  }

  @ParameterizedTest
  @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "POOL")
  void shouldExportTheAllocationAndTheOffsetOfABuffer(CudaMemoryKind memory) throws IOException {
    try (CudaDevice device = CudaDevice.open(0, CudaDeviceOptions.DEFAULT.withMemory(memory));
        CudaBuffer large = device.allocate(3 << 20);
        CudaBuffer small = device.allocate(64);
        CudaBuffer next = device.allocate(64)) {
      assumeTrue(device.exportsDmaBufs(), "this GPU's driver exports no dma-bufs");
      try (DmaBuf whole = large.exportDmaBuf().orElseThrow();
          DmaBuf part = large.slice(12345, 100).exportDmaBuf().orElseThrow();
          DmaBuf first = small.exportDmaBuf().orElseThrow();
          DmaBuf second = next.exportDmaBuf().orElseThrow()) {
        assertThat(Files.readSymbolicLink(file(whole)).toString()).containsAnyOf("dmabuf", "memfd");
        assertThat(whole.offset()).isZero();
        assertThat(part.offset()).isEqualTo(12345);
        assertThat(second.offset() - first.offset()).isEqualTo(next.address() - small.address());
        assertThat(second.descriptor()).isNotEqualTo(first.descriptor());
      }
    }
  }

  @ParameterizedTest
  @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "POOL")
  void shouldNotLeakDescriptors(CudaMemoryKind memory) throws IOException {
    try (CudaDevice device = CudaDevice.open(0, CudaDeviceOptions.DEFAULT.withMemory(memory));
        CudaBuffer buffer = device.allocate(2 << 20)) {
      assumeTrue(device.exportsDmaBufs(), "this GPU's driver exports no dma-bufs");
      buffer.exportDmaBuf().orElseThrow().close();
      long before = descriptors();
      for (int i = 0; i < 100; i++) {
        buffer.exportDmaBuf().orElseThrow().close();
      }
      assertThat(descriptors()).isLessThan(before + 50);
    }
  }

  private static long descriptors() throws IOException {
    try (var files = Files.list(Path.of("/proc/self/fd"))) {
      return files.count();
    }
  }
}
