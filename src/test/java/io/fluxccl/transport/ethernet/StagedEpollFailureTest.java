package io.fluxccl.transport.ethernet;

class StagedEpollFailureTest extends EthernetFailureContract {
  StagedEpollFailureTest() {
    super(() -> new Ranks(NetworkStack.EPOLL, StagingPolicy.ALWAYS));
  }
}
