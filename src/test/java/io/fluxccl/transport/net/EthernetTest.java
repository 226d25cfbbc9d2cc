// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.host.HostDevice;
import java.nio.file.Path;
import org.junit.jupiter.api.Nested;

/** ETHERNET between host devices, for memory that sockets reach, and staged as a GPU's is. */
class EthernetTest {
  @Nested
  class Connections extends NetConnectionContract {
    @Override
    NetRanks open(Path folder) {
      return NetRanks.ethernet(false);
    }
  }

  @Nested
  class StagedConnections extends NetConnectionContract {
    @Override
    NetRanks open(Path folder) {
      return NetRanks.ethernet(true);
    }
  }

  @Nested
  class Failures extends EthernetFailureContract {
    Failures() {
      super(() -> NetRanks.ethernet(false));
    }
  }

  @Nested
  class StagedFailures extends EthernetFailureContract {
    StagedFailures() {
      super(() -> NetRanks.ethernet(true));
    }
  }

  @Nested
  class StagedTransfers extends EthernetStagedTransferContract {
    StagedTransfers() {
      super(NetRanks::ethernet);
    }
  }

  @Nested
  class StagedTrouble extends EthernetStagedTroubleContract {
    StagedTrouble() {
      super(HostDevice::create);
    }
  }
}
