package io.fluxccl.transport.ethernet;

class EpollConnectionTest extends EthernetConnectionContract {
  EpollConnectionTest() {
    super(() -> new Ranks(NetworkStack.EPOLL));
  }
}
