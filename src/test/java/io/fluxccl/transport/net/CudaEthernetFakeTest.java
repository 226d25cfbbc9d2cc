// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestNet;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** A GPU each, of the fake driver. */
@FakeCuda
class CudaEthernetFakeTest {
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

  @Nested
  class Failures extends NetFailureContract {
    Failures() {
      super(OnGpus.ETHERNET.opener);
    }
  }

  @Nested
  class Transfers extends EthernetStagedTransferContract {
    Transfers() {
      super(() -> CudaDevice.open(0), () -> CudaDevice.open(1));
    }
  }

  @Nested
  class Trouble extends EthernetStagedTroubleContract {
    Trouble() {
      super(() -> CudaDevice.open(0));
    }
  }
}
