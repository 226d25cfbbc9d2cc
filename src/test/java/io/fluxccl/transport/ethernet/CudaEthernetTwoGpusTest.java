package io.fluxccl.transport.ethernet;

import io.fluxccl.testing.RequiresGpus;
import org.junit.jupiter.api.Nested;

/** A GPU each. */
@RequiresGpus(2)
class CudaEthernetTwoGpusTest {
  @Nested
  class Connections extends EthernetConnectionContract {
    Connections() {
      super(() -> Ranks.onGpus(StagingPolicy.WHERE_NEEDED, 0, 1));
    }
  }

  @Nested
  class Failures extends EthernetFailureContract {
    Failures() {
      super(() -> Ranks.onGpus(StagingPolicy.WHERE_NEEDED, 0, 1));
    }
  }

  @Nested
  class Transfers extends StagedTransferContract {
    Transfers() {
      super(policy -> Ranks.onGpus(policy, 0, 1));
    }
  }
}
