package io.fluxccl.transport.ethernet;

class EpollConnectionTest extends EthernetConnectionContract {
  EpollConnectionTest() {
    super(NetworkStack.EPOLL);
  }
}
