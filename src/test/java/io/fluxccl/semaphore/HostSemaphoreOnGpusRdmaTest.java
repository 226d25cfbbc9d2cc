// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The tests of {@link HostSemaphoreOnGpusTest} for all transports, over RDMA. */
@EmulatedGpus
@RequiresRdma
@Timeout(120)
class HostSemaphoreOnGpusRdmaTest {
  @Test
  void shouldSignalAfterWritesOfGpuAndHostMemory() {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(rank -> HostSemaphoreOnGpusTest.exchange(rank, Transport.IB0, rank.device()));
    }
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          rank ->
              HostSemaphoreOnGpusTest.exchange(
                  rank, Transport.IB0, rank.communicator().hostDevice()));
    }
  }
}
