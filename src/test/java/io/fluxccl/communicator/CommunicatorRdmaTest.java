// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;

/** The tests of {@link CommunicatorTest} for all transports, over RDMA. */
@RequiresRdma
class CommunicatorRdmaTest {
  private final CommunicatorTest behaviours = new CommunicatorTest();

  @Test
  void shouldWriteToEveryPeer() {
    behaviours.shouldWriteToEveryPeer(Transport.IB0);
  }

  @Test
  void shouldConnectToItself() {
    behaviours.shouldConnectToItself(Transport.IB0);
  }
}
