// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.host.HostDevice;
import org.junit.jupiter.api.Nested;

/** ETHERNET between host devices whose memory is staged as a GPU's is. */
class EthernetStagedTest {
  @Nested
  class Transfers extends EthernetStagedTransferContract {
    Transfers() {
      super(HostDevice::create, HostDevice::create);
    }
  }

  @Nested
  class Trouble extends EthernetStagedTroubleContract {
    Trouble() {
      super(HostDevice::create);
    }
  }
}
