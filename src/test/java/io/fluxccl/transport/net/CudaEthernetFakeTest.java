// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import java.nio.file.Path;
import org.junit.jupiter.api.Nested;

/** A GPU each, of the fake driver. */
@FakeCuda
class CudaEthernetFakeTest {
  @Nested
  class Connections extends NetConnectionContract {
    @Override
    NetRanks open(Path folder) {
      return NetRanks.ethernetOnGpus(0, 1);
    }
  }

  @Nested
  class Failures extends EthernetFailureContract {
    Failures() {
      super(() -> NetRanks.ethernetOnGpus(0, 1));
    }
  }

  @Nested
  class Transfers extends EthernetStagedTransferContract {
    Transfers() {
      super(policy -> NetRanks.ethernet(policy, CudaDevice.open(0), CudaDevice.open(1)));
    }
  }

  @Nested
  class Trouble extends EthernetStagedTroubleContract {
    Trouble() {
      super(() -> CudaDevice.open(0));
    }
  }
}
