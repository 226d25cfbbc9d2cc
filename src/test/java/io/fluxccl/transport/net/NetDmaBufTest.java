// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.transport.ConnectedRanks.get;

import io.fluxccl.TransportFailure;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Transfer;
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
    return NetRanks.onGpus(TestNet.library(folder, version, faults));
  }

  /** 1: by dma-buf only; 2: dma-bufs are refused, and the address is registered. */
  @ParameterizedTest
  @CsvSource({"6, 1", "11, 1", "11, 2"})
  void shouldRegisterByDmaBufAndElseByAddress(int version, int dmaBuf) throws Exception {
    int size = (3 << 20) + 4096;
    try (NetRanks ranks = open(version, "POINTERS=7", "DMABUF=" + dmaBuf)) {
      Transfer transfer = ranks.transfer(0, size);
      transfer.write(64, 32, size - 4096).flush();
      transfer.assertWritten(64, 32, size - 4096);
    }
  }

  @Test
  void shouldReportRegMrIfAddressAndDmaBufAreRefused() throws Exception {
    // The plugin refuses the address and does not declare support for dma-bufs.
    try (NetRanks ranks = open(11, "POINTERS=3", "DMABUF=1")) {
      Transfer transfer = ranks.transfer(0, 1 << 20).write();
      assertFailure(
          TransportFailure.class,
          get(transfer.link().failed()),
          "regMr of 1048576 bytes of CUDA memory failed");
    }
  }
}
