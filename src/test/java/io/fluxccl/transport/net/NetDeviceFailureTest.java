// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A GPU that dies while memory of it is staged. */
@FakeCuda
@Timeout(120)
class NetDeviceFailureTest {
  static final DeviceFailure BROKEN =
      new DeviceFailure(
          700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuMemcpyAsync on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS");

  @TempDir private static Path folder;

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldFailBothEndsWhenADeviceDiesWithCopiesInFlight(int bad) throws Exception {
    NetChoice choice = new NetChoice(null, TestNet.library(folder, 9).toString(), null, false);
    WatchedDevice[] devices = {
      new WatchedDevice(CudaDevice.open(0)), new WatchedDevice(CudaDevice.open(1))
    };
    try (NetRanks ranks = new NetRanks(choice, devices[0], devices[1])) {
      Transfer transfer = ranks.transfer(0, 64);
      devices[bad].die(BROKEN);
      CompletableFuture<Void> flush = transfer.write().flushing();
      Connection end = bad == 0 ? transfer.link() : transfer.back();
      FluxCclException failure = get(end.failed());
      assertThat(failure)
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("CUDA_ERROR_ILLEGAL_ADDRESS")
          .hasCause(BROKEN);
      assertThat(failure.rank()).isEqualTo(bad);
      assertThat(failureOf(flush)).isInstanceOf(TransportFailure.class);
      devices[bad].die(null);
    }
  }
}
