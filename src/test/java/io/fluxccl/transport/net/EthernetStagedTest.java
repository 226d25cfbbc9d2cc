// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.device.host.HostDevice;

/** Host devices whose memory is staged as a GPU's is. */
class EthernetStagedTest extends EthernetStagedContract {
  EthernetStagedTest() {
    super(rank -> HostDevice.create());
  }
}
