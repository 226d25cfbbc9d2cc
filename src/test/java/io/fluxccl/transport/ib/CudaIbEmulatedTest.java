// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

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

  @Test
  void shouldRegisterByDmaBufWhereTheDeviceTakesThemElseByAddress() throws Exception {
    for (boolean takes : new boolean[] {true, false}) {
      FakeVerbs verbs = new FakeVerbs();
      verbs.takeDmaBufs(takes);
      try (IbRanks ranks = IbRanks.fakeOnGpus(verbs, 1 << 20)) {
        RegisteredMemory source = ranks.filled(0, 3_000_000, 1);
        RegisteredMemory target = ranks.memory(1, 3_000_000);
        // Three pieces each.
        assertThat(verbs.dmaBufs()).isEqualTo(takes ? 6 : 0);
        Connection link = ranks.connect(0).get(0);
        link.write(ranks.seenByPeer(target), 0, source, 0, 3_000_000);
        ranks.await(link.flush(IbRanks.LIMIT));
        Contents.assertSame(target, 0, source, 0, 3_000_000);
      }
    }
  }
}
