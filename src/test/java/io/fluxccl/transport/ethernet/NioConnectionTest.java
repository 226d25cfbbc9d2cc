package io.fluxccl.transport.ethernet;

class NioConnectionTest extends EthernetConnectionContract {
  NioConnectionTest() {
    super(() -> new Ranks(NetworkStack.NIO));
  }
}
