package io.fluxccl.transport.ib;

import io.fluxccl.testing.EmulatedGpus;
import org.junit.jupiter.api.Nested;

/**
 * Memory of GPUs, registered by its address. The GPUs are emulated, because the host can't read the
 * memory of the fake driver's other GPUs.
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
  class Failures extends IbFailureContract {
    Failures() {
      super(IbRanks::fakeOnGpus);
    }
  }
}
