package io.fluxccl.transport.ethernet;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import org.junit.jupiter.api.Nested;

/** A GPU each, of the fake driver. */
@FakeCuda
class CudaEthernetFakeTest {
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

  @Nested
  class Trouble extends StagedTroubleContract {
    Trouble() {
      super(NetworkStack.EPOLL, () -> CudaDevice.open(0));
    }
  }
}
