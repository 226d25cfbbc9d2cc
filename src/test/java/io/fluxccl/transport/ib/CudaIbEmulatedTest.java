// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.transport.Transfer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

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

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldRegisterByDmaBufIfTheDeviceSupportsItElseByAddress(boolean takes) throws Exception {
    FakeVerbs verbs = new FakeVerbs();
    verbs.takeDmaBufs(takes);
    try (IbRanks ranks = IbRanks.fakeOnGpus(verbs, 1 << 20)) {
      Transfer transfer = ranks.transfer(0, 3_000_000);
      // Three pieces each.
      assertThat(verbs.dmaBufs()).isEqualTo(takes ? 6 : 0);
      transfer.check();
    }
  }
}
