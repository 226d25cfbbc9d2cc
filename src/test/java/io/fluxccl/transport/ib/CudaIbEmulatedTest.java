package io.fluxccl.transport.ib;

import io.fluxccl.testing.EmulatedGpus;
import org.junit.jupiter.api.Nested;

/**
 * Memory of GPUs, registered by its address or staged; the GPUs are emulated, because the fake
 * driver's others keep the host from their memory.
 */
@EmulatedGpus
class CudaIbEmulatedTest {
  @Nested
  class Connections extends IbConnectionContract {
    Connections() {
      super(IbRanks::fakeOnGpus);
    }
  }

  @Nested
  class StagedConnections extends StagedIbConnectionContract {
    StagedConnections() {
      super(IbRanks::fakeStagedOnGpus);
    }
  }

  @Nested
  class Failures extends IbFailureContract {
    Failures() {
      super(IbRanks::fakeOnGpus);
    }
  }
}
