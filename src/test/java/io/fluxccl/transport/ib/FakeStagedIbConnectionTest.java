package io.fluxccl.transport.ib;

class FakeStagedIbConnectionTest extends StagedIbConnectionContract {
  FakeStagedIbConnectionTest() {
    super(IbRanks::fakeStaged);
  }
}
