package io.fluxccl.transport.ib;

import io.fluxccl.testing.RequiresRdma;

@RequiresRdma
class IbConnectionTest extends IbConnectionContract {
  IbConnectionTest() {
    super(IbRanks::new);
  }
}
