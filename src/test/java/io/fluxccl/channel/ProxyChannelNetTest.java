// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNetwork;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The tests of {@link ProxyChannelTest} for all transports, over a network plugin. */
@RequiresNativeLibrary
@ExtendWith(TestNetwork.class)
@Ranks(value = 2, seconds = 220, leakCheck = false)
class ProxyChannelNetTest {
  private final ProxyChannelTest behaviours = new ProxyChannelTest();

  @Test
  void shouldPlayPingPong(LocalRank rank) throws Exception {
    behaviours.shouldPlayPingPong(Transport.NET, 1024, rank);
  }

  @Test
  void shouldNeverShowASignalBeforeItsData(LocalRank rank) throws Exception {
    behaviours.shouldNeverShowASignalBeforeItsData(Transport.NET, rank);
  }

  @Test
  void shouldLetFourThreadsFlushOneChannelAtOnce(LocalRank rank) throws Exception {
    behaviours.shouldLetFourThreadsFlushOneChannelAtOnce(Transport.NET, rank);
  }
}
