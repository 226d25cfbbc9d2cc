package io.fluxccl.transport.ib;

class FakeIbFailureTest extends IbFailureContract {
  FakeIbFailureTest() {
    super(IbRanks::fake);
  }
}
