package io.fluxccl.transport.ethernet;

class NioFailureTest extends EthernetFailureContract {
  NioFailureTest() {
    super(() -> new Ranks(NetworkStack.NIO));
  }
}
