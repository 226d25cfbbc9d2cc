package io.fluxccl.transport.ethernet;

class EpollFailureTest extends EthernetFailureContract {
  EpollFailureTest() {
    super(NetworkStack.EPOLL);
  }
}
