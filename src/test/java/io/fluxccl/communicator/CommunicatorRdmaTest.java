// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;

/** The tests of {@link CommunicatorTest} for all transports, over RDMA. */
@RequiresRdma
@Ranks(value = 1, leakCheck = false)
class CommunicatorRdmaTest {
  private final CommunicatorTest behaviours = new CommunicatorTest();

  @Test
  @Ranks(value = 4, leakCheck = false)
  void shouldWriteToEveryPeer(LocalRank rank) {
    behaviours.shouldWriteToEveryPeer(Transport.IB0, rank);
  }

  @Test
  void shouldConnectToItself(LocalRank rank) {
    behaviours.shouldConnectToItself(Transport.IB0, rank);
  }
}
