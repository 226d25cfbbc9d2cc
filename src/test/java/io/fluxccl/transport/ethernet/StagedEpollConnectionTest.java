package io.fluxccl.transport.ethernet;

class StagedEpollConnectionTest extends EthernetConnectionContract {
  StagedEpollConnectionTest() {
    super(() -> new Ranks(NetworkStack.EPOLL, StagingPolicy.ALWAYS));
  }
}
