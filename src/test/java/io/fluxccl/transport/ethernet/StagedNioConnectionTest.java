package io.fluxccl.transport.ethernet;

class StagedNioConnectionTest extends EthernetConnectionContract {
  StagedNioConnectionTest() {
    super(() -> new Ranks(NetworkStack.NIO, StagingPolicy.ALWAYS));
  }
}
