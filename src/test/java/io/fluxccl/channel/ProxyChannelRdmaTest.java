// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;

/** The tests of {@link ProxyChannelTest} for all transports, over RDMA. */
@RequiresRdma
@Ranks(value = 2, seconds = 220, leakCheck = false)
class ProxyChannelRdmaTest {
  private final ProxyChannelTest behaviours = new ProxyChannelTest();

  @Test
  void shouldPlayPingPong(LocalRank rank) throws Exception {
    behaviours.shouldPlayPingPong(Transport.IB0, 1024, rank);
  }

  @Test
  void shouldNeverShowASignalBeforeItsData(LocalRank rank) throws Exception {
    behaviours.shouldNeverShowASignalBeforeItsData(Transport.IB0, rank);
  }

  @Test
  void shouldLetFourThreadsFlushOneChannelAtOnce(LocalRank rank) throws Exception {
    behaviours.shouldLetFourThreadsFlushOneChannelAtOnce(Transport.IB0, rank);
  }
}
