// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.ib.IbTransport;
import java.util.EnumSet;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** Runs {@link AllPairsTest} over RDMA; in the guest over two devices. */
@RequiresRdma
@Timeout(240)
class AllPairsRdmaTest {
  private static final Network RDMA = new Network(Network.Kind.IB, false);

  @Test
  void shouldReduceBetweenHosts() {
    AllPairsTest.run(LocalRanks.ofHosts(2, 2), RDMA);
  }

  @Test
  @EmulatedGpus
  void shouldReduceBetweenGpus() {
    AllPairsTest.run(LocalRanks.ofHostsOnGpus(2, 2), RDMA);
  }

  @Test
  @EnabledIfSystemProperty(named = "fluxccl.rdma.guest", matches = "true")
  void shouldUseEveryRail() {
    assertThat(IbTransport.getIbDeviceCount()).isGreaterThanOrEqualTo(2);
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 2)) {
      Set<Transport> rails = EnumSet.noneOf(Transport.class);
      for (int peer = 2; peer < 4; peer++) {
        for (int rank = 0; rank < 2; rank++) {
          rails.add(RDMA.between(ranks.ranks().get(rank).communicator().bootstrap(), peer));
        }
      }
      assertThat(rails).contains(Transport.IB0, Transport.IB1);
    }
  }
}
