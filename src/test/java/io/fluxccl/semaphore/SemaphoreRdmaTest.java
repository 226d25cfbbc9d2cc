// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;

/** The tests of {@link SemaphoreTest} for all transports, over RDMA. */
@RequiresRdma
@Ranks(value = 2, leakCheck = false)
class SemaphoreRdmaTest {
  private final SemaphoreTest behaviours = new SemaphoreTest();

  @Test
  void shouldOrderWritesWithHostSemaphoresForManyRounds(LocalRank rank) {
    behaviours.shouldOrderWritesWithHostSemaphoresForManyRounds(Transport.IB0, rank);
  }

  @Test
  void shouldOrderWritesWithDeviceSemaphoresForManyRounds(LocalRank rank) {
    behaviours.shouldOrderWritesWithDeviceSemaphoresForManyRounds(Transport.IB0, rank);
  }
}
