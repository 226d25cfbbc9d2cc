package io.fluxccl.transport.ethernet;

class EpollFailureTest extends EthernetFailureContract {
  EpollFailureTest() {
    super(() -> new Ranks(NetworkStack.EPOLL));
  }
}
