// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;

/** The tests of {@link SemaphoreTest} for all transports, over RDMA. */
@RequiresRdma
class SemaphoreRdmaTest {
  private final SemaphoreTest behaviours = new SemaphoreTest();

  @Test
  void shouldOrderWritesWithHostSemaphoresForTwoRounds() {
    behaviours.shouldOrderWritesWithHostSemaphoresForTwoRounds(Transport.IB0);
  }

  @Test
  void shouldOrderWritesWithDeviceSemaphoresForTwoRounds() {
    behaviours.shouldOrderWritesWithDeviceSemaphoresForTwoRounds(Transport.IB0);
  }
}
