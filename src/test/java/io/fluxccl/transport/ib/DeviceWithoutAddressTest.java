// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.transport.ib.SoftRoce.run;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.RequiresRdma;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** Makes a Soft-RoCE device on an interface without an IP address. */
@RequiresRdma
@EnabledIfSystemProperty(named = "fluxccl.rdma.guest", matches = "true")
@Timeout(120)
class DeviceWithoutAddressTest {
  @Test
  void shouldConnectByTheGidThatIsMadeFromTheMacAddress() throws Exception {
    run("ip", "link", "add", "bare0", "type", "dummy");
    run("ip", "link", "set", "bare0", "up");
    run("rdma", "link", "add", "rxe90", "type", "rxe", "netdev", "bare0");
    RdmaDevices.Device device = SoftRoce.await("rxe90");
    assertThat(device.gids()).extracting(Gid::kind).containsOnly(Gid.Kind.ROCE_V2_LINK_LOCAL);
    try (IbRanks ranks = new IbRanks(device)) {
      ranks.exchange(100_000);
    }
  }
}
