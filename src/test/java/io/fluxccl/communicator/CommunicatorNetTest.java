// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNetwork;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The tests of {@link CommunicatorTest} for all transports, over a network plugin. */
@RequiresNativeLibrary
@ExtendWith(TestNetwork.class)
@Ranks(value = 1, leakCheck = false)
class CommunicatorNetTest {
  private final CommunicatorTest behaviours = new CommunicatorTest();

  @Test
  @Ranks(value = 4, leakCheck = false)
  void shouldWriteToEveryPeer(LocalRank rank) {
    behaviours.shouldWriteToEveryPeer(Transport.NET, rank);
  }

  @Test
  void shouldConnectToItself(LocalRank rank) {
    behaviours.shouldConnectToItself(Transport.NET, rank);
  }

  @Test
  void shouldForgetClosedConnections(LocalRank rank) {
    behaviours.shouldForgetClosedConnections(Transport.NET, rank);
  }
}
