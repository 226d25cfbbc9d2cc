package io.fluxccl.transport.ethernet;

class StagedEpollTransferTest extends StagedTransferContract {
  StagedEpollTransferTest() {
    super(policy -> new Ranks(NetworkStack.EPOLL, policy));
  }
}
