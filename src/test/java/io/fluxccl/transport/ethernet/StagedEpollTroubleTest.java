package io.fluxccl.transport.ethernet;

import io.fluxccl.device.host.HostDevice;

class StagedEpollTroubleTest extends StagedTroubleContract {
  StagedEpollTroubleTest() {
    super(NetworkStack.EPOLL, HostDevice::create);
  }
}
