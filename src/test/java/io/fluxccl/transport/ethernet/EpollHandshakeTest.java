package io.fluxccl.transport.ethernet;

class EpollHandshakeTest extends EthernetHandshakeContract {
  EpollHandshakeTest() {
    super(NetworkStack.EPOLL);
  }
}
