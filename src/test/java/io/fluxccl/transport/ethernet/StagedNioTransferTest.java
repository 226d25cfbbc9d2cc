package io.fluxccl.transport.ethernet;

class StagedNioTransferTest extends StagedTransferContract {
  StagedNioTransferTest() {
    super(policy -> new Ranks(NetworkStack.NIO, policy));
  }
}
