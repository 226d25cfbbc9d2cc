package io.fluxccl.transport.ib;

class FakeIbConnectionTest extends IbConnectionContract {
  FakeIbConnectionTest() {
    super(IbRanks::fake);
  }
}
