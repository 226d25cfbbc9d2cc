package io.fluxccl.transport.ethernet;

class NioConnectionTest extends EthernetConnectionContract {
  NioConnectionTest() {
    super(NetworkStack.NIO);
  }
}
