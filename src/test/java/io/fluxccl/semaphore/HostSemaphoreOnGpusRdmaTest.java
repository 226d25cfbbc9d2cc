// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The tests of {@link HostSemaphoreOnGpusTest} for all transports, over RDMA. */
@EmulatedGpus
@RequiresRdma
@Timeout(120)
@Ranks(value = 2, onGpus = true, leakCheck = false)
class HostSemaphoreOnGpusRdmaTest {
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldSignalAfterWrites(boolean toHostMemory, LocalRank rank) {
    HostSemaphoreOnGpusTest.exchange(rank, Transport.IB0, toHostMemory);
  }
}
