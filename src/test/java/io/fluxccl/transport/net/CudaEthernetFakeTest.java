// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestNet;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.plugin.NetChoice;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A GPU each, of the fake driver. */
@FakeCuda
class CudaEthernetFakeTest {
  @TempDir static Path folder;

  /** Memory of ETHERNET, memory that a plugin says it reaches, and memory that it does not. */
  enum OnGpus {
    ETHERNET(folder -> NetRanks.ethernetOnGpus(0, 1)),
    PLUGIN_REACHES(folder -> NetRanks.onGpus(TestNet.library(folder, 11, "POINTERS=3"))),
    PLUGIN_STAGED(folder -> NetRanks.onGpus(TestNet.library(folder, 9)));

    private final Network.Opener opener;

    OnGpus(Network.Opener opener) {
      this.opener = opener;
    }
  }

  @Nested
  @ParameterizedClass
  @EnumSource(OnGpus.class)
  class Connections extends NetConnectionContract {
    Connections(OnGpus network) {
      super(network.opener);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldFailBothEndsIfAGpuDiesWhileAPluginStagesItsMemory(int bad) throws Exception {
    WatchedDevice[] gpus = {
      new WatchedDevice(CudaDevice.open(0)), new WatchedDevice(CudaDevice.open(1))
    };
    String library = TestNet.library(folder, 9).toString();
    try (NetRanks ranks = new NetRanks(new NetChoice(null, library, null), gpus[0], gpus[1])) {
      Transfer transfer = ranks.transfer(0, 64);
      gpus[bad].die(EthernetStagedContract.BROKEN);
      CompletableFuture<Void> flush = transfer.write().flushing();
      EthernetStagedContract.assertFailed(transfer, bad);
      assertThat(failureOf(flush)).isInstanceOf(TransportFailure.class);
      gpus[bad].die(null);
    }
  }

  @Nested
  class Staged extends EthernetStagedContract {
    Staged() {
      super(CudaDevice::open);
    }
  }
}
