// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A GPU that dies while memory of it is staged. */
@FakeCuda
@Timeout(120)
class NetDeviceFailureTest {
  private static final DeviceFailure BROKEN =
      new DeviceFailure(
          700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuMemcpyAsync on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS");

  @TempDir private static Path folder;

  @Test
  void shouldFailBothEndsWhenADeviceDiesWithCopiesInFlight() throws Exception {
    NetChoice choice = new NetChoice(null, TestNet.library(folder, 9).toString(), null, false);
    WatchedDevice[] devices = {
      new WatchedDevice(CudaDevice.open(0)), new WatchedDevice(CudaDevice.open(1))
    };
    try (NetRanks ranks = new NetRanks(choice, devices[0], devices[1])) {
      RegisteredMemory source = ranks.memory(0, 64);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
      for (int bad = 0; bad < 2; bad++) {
        List<Connection> ends = ranks.connect(bad);
        devices[bad].die(BROKEN);
        ends.get(0).write(remote, 0, source, 0, 64);
        CompletableFuture<Void> flush = ends.get(0).flush(LIMIT);

        FluxCclException failure = get(ends.get(bad).failed());

        assertThat(failure)
            .isInstanceOf(TransportFailure.class)
            .hasMessageContaining("CUDA_ERROR_ILLEGAL_ADDRESS")
            .hasCause(BROKEN);
        assertThat(failure.rank()).isEqualTo(bad);
        assertThatThrownBy(() -> get(flush))
            .isInstanceOf(ExecutionException.class)
            .hasCauseInstanceOf(TransportFailure.class);
        devices[bad].die(null);
      }
    }
  }
}
