// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNetwork;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The tests of {@link ProxyChannelTest} for all transports, over a network plugin. */
@RequiresNativeLibrary
@ExtendWith(TestNetwork.class)
class ProxyChannelNetTest {
  private final ProxyChannelTest behaviours = new ProxyChannelTest();

  @Test
  void shouldPlayPingPong() {
    behaviours.shouldPlayPingPong(Transport.NET, 1024);
  }

  @Test
  void shouldNeverShowASignalBeforeItsData() {
    behaviours.shouldNeverShowASignalBeforeItsData(Transport.NET);
  }

  @Test
  void shouldLetFourThreadsFlushOneChannelAtOnce() {
    behaviours.shouldLetFourThreadsFlushOneChannelAtOnce(Transport.NET);
  }
}
