// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.transport.ib.SoftRoce.run;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RegisteredMemory;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** Makes a Soft-RoCE device on an interface without an IP address. */
@RequiresRdma
@EnabledIfSystemProperty(named = "fluxccl.rdma.guest", matches = "true")
@Timeout(120)
class DeviceWithoutAddressTest {
  private static final int SIZE = 100_000;

  @Test
  void shouldConnectByTheGidThatIsMadeFromTheMacAddress() throws Exception {
    run("ip", "link", "add", "bare0", "type", "dummy");
    run("ip", "link", "set", "bare0", "up");
    run("rdma", "link", "add", "rxe90", "type", "rxe", "netdev", "bare0");
    RdmaDevices.Device device = SoftRoce.await("rxe90");
    assertThat(device.gids()).extracting(Gid::kind).containsOnly(Gid.Kind.ROCE_V2_LINK_LOCAL);
    try (IbRanks ranks = new IbRanks(device)) {
      List<Connection> ends = ranks.connect(0);
      for (int rank = 0; rank < 2; rank++) {
        RegisteredMemory source = ranks.filled(rank, SIZE, rank);
        RegisteredMemory target = ranks.memory(1 - rank, SIZE + 8);
        RegisteredMemory remote = ranks.seenByPeer(target);
        ends.get(rank).write(remote, 8, source, 0, SIZE);
        ends.get(rank).updateAndSync(remote, 0, new AtomicLong(), 7);
        ranks.await(ends.get(rank).flush(IbRanks.LIMIT));
        Contents.assertSame(target, 8, source, 0, SIZE);
        assertThat(Contents.getLong(target, 0)).isEqualTo(7);
      }
    }
  }
}
