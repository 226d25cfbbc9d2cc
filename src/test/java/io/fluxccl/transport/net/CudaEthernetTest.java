// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.RequiresGpus;
import org.junit.jupiter.api.Nested;

/** Both ranks on one GPU. */
@RequiresGpus
class CudaEthernetTest {
  @Nested
  class Connections extends NetConnectionContract {
    Connections() {
      super(folder -> NetRanks.ethernetOnGpus(0, 0));
    }
  }

  @Nested
  class Staged extends EthernetStagedContract {
    Staged() {
      super(rank -> CudaDevice.open(0));
    }
  }
}
