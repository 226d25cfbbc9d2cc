package io.fluxccl.transport.ethernet;

import io.fluxccl.device.host.HostDevice;

class StagedNioTroubleTest extends StagedTroubleContract {
  StagedNioTroubleTest() {
    super(NetworkStack.NIO, HostDevice::create);
  }
}
