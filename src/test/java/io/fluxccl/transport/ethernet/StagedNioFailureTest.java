package io.fluxccl.transport.ethernet;

class StagedNioFailureTest extends EthernetFailureContract {
  StagedNioFailureTest() {
    super(() -> new Ranks(NetworkStack.NIO, StagingPolicy.ALWAYS));
  }
}
