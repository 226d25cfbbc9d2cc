// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Memory of the fake driver's GPUs, which a plugin reaches by dma-bufs. */
@FakeCuda
@RequiresNativeLibrary
@Timeout(120)
class NetDmaBufTest {
  @TempDir private static Path folder;

  private static NetRanks open(int version, String... faults) throws Exception {
    String library = TestNet.library(folder, version, faults).toString();
    return new NetRanks(
        new NetChoice(null, library, null, false), CudaDevice.open(0), CudaDevice.open(1));
  }

  /** 1: by dma-buf only; 2: dma-bufs are refused, and the address is registered. */
  @ParameterizedTest
  @CsvSource({"6, 1", "11, 1", "11, 2"})
  void shouldRegisterByDmaBufAndElseByAddress(int version, int dmaBuf) throws Exception {
    int size = (3 << 20) + 4096;
    try (NetRanks ranks = open(version, "POINTERS=7", "DMABUF=" + dmaBuf)) {
      Connection link = ranks.connect(0).get(0);
      RegisteredMemory source = ranks.filled(0, size, 7);
      RegisteredMemory target = ranks.memory(1, size);
      link.write(ranks.seenByPeer(target), 64, source, 32, size - 4096);
      get(link.flush(LIMIT));
      assertThat(Contents.get(target, 64, size - 4096))
          .isEqualTo(Contents.get(source, 32, size - 4096));
    }
  }

  @Test
  void shouldReportRegMrIfAddressAndDmaBufAreRefused() throws Exception {
    int size = 1 << 20;
    // The plugin refuses the address and does not declare support for dma-bufs.
    try (NetRanks ranks = open(11, "POINTERS=3", "DMABUF=1")) {
      Connection link = ranks.connect(0).get(0);
      RegisteredMemory source = ranks.filled(0, size, 7);
      RegisteredMemory target = ranks.memory(1, size);
      link.write(ranks.seenByPeer(target), 0, source, 0, size);
      assertThat(get(link.failed()))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("regMr of 1048576 bytes of CUDA memory failed");
    }
  }
}
