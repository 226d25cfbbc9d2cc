package io.fluxccl.transport.ethernet;

class NioFailureTest extends EthernetFailureContract {
  NioFailureTest() {
    super(NetworkStack.NIO);
  }
}
