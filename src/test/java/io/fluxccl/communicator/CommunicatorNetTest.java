// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNetwork;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The tests of {@link CommunicatorTest} for all transports, over a network plugin. */
@RequiresNativeLibrary
@ExtendWith(TestNetwork.class)
class CommunicatorNetTest {
  private final CommunicatorTest behaviours = new CommunicatorTest();

  @Test
  void shouldWriteToEveryPeer() {
    behaviours.shouldWriteToEveryPeer(Transport.NET);
  }

  @Test
  void shouldConnectToItself() {
    behaviours.shouldConnectToItself(Transport.NET);
  }

  @Test
  void shouldForgetClosedConnections() {
    behaviours.shouldForgetClosedConnections(Transport.NET);
  }
}
