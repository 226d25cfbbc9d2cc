package io.fluxccl.transport.ethernet;

class NioHandshakeTest extends EthernetHandshakeContract {
  NioHandshakeTest() {
    super(NetworkStack.NIO);
  }
}
