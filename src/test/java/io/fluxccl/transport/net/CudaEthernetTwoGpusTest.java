// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.RequiresGpus;
import org.junit.jupiter.api.Nested;

/** A GPU each. */
@RequiresGpus(2)
class CudaEthernetTwoGpusTest {
  @Nested
  class Connections extends NetConnectionContract {
    Connections() {
      super(folder -> NetRanks.ethernetOnGpus(0, 1));
    }
  }

  @Nested
  class Staged extends EthernetStagedContract {
    Staged() {
      super(CudaDevice::open);
    }
  }
}
