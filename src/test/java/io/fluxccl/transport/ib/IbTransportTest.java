// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class IbTransportTest {
  @TempDir private Path root;

  @Test
  void shouldExplainInOneSentenceWhyGpuMemoryIsOutOfReach() {
    assertThat(new IbTransport(root).unreachableBecause(Transport.IB0, DeviceKind.CUDA, false))
        .hasValue(
            "RDMA devices can't reach GPU memory: the GPU's driver exports no dma-bufs, and"
                + " nvidia-peermem is not loaded (modprobe nvidia-peermem)");
  }

  @Test
  void shouldReachGpuMemoryWithPeerMemoryAndHostMemoryWithout() throws IOException {
    IbTransport transport = new IbTransport(root);
    assertThat(transport.unreachableBecause(Transport.IB0, DeviceKind.HOST, false)).isEmpty();
    Files.createDirectories(root.resolve("sys/module/nvidia_peermem"));
    assertThat(transport.unreachableBecause(Transport.IB0, DeviceKind.CUDA, false)).isEmpty();
  }
}
