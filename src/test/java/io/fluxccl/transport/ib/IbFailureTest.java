package io.fluxccl.transport.ib;

import io.fluxccl.testing.RequiresRdma;

@RequiresRdma
class IbFailureTest extends IbFailureContract {
  IbFailureTest() {
    super(IbRanks::new);
  }
}
