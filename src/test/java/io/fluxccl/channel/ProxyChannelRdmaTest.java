// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;

/** The tests of {@link ProxyChannelTest} for all transports, over RDMA. */
@RequiresRdma
class ProxyChannelRdmaTest {
  private final ProxyChannelTest behaviours = new ProxyChannelTest();

  @Test
  void shouldPlayPingPong() {
    behaviours.shouldPlayPingPong(Transport.IB0, 1024);
  }

  @Test
  void shouldNeverShowASignalBeforeItsData() {
    behaviours.shouldNeverShowASignalBeforeItsData(Transport.IB0);
  }

  @Test
  void shouldLetFourThreadsFlushOneChannelAtOnce() {
    behaviours.shouldLetFourThreadsFlushOneChannelAtOnce(Transport.IB0);
  }
}
