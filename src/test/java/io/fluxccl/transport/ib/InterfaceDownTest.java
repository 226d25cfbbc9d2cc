// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.transport.ib.SoftRoce.run;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/**
 * Makes Soft-RoCE devices and takes their interfaces down; runs only on a machine that the property
 * marks as a test guest. Each round makes a device and does not delete it, because deleting it
 * would wait for this process.
 */
@RequiresRdma
@EnabledIfSystemProperty(named = "fluxccl.rdma.guest", matches = "true")
@Timeout(400)
class InterfaceDownTest {
  private static final int ROUNDS = Integer.getInteger("fluxccl.rdma.downs", 3);
  private static final int CONNECTIONS = 4;
  private static final int SIZE = 64 << 10;

  @Test
  void shouldFailOnlyConnectionsOfAnInterfaceThatIsTakenDown() throws Exception {
    try (IbRanks others = new IbRanks()) {
      Connection living = others.connect(0).get(0);
      RegisteredMemory source = others.filled(0, SIZE, 1);
      RegisteredMemory target = others.memory(1, SIZE);
      RegisteredMemory remote = others.seenByPeer(target);
      for (int round = 0; round < ROUNDS; round++) {
        String name = "down" + round;
        String address = "10.9." + (100 + round) + ".1";
        run("ip", "link", "add", name, "type", "dummy");
        run("ip", "addr", "add", address + "/24", "dev", name);
        run("ip", "link", "set", name, "up");
        String device = "rxe" + (100 + round);
        run("rdma", "link", "add", device, "type", "rxe", "netdev", name);

        takeDown(name, SoftRoce.await(device));
        living.write(remote, round, source, 0, SIZE - round);
        others.await(living.flush(IbRanks.LIMIT));
        Contents.assertSame(target, round, source, 0, SIZE - round);
      }
    }
  }

  private static void takeDown(String name, RdmaDevices.Device device) throws Exception {
    RdmaOptions quick = RdmaOptions.DEFAULT.withRetries(2, Duration.ofMillis(60));
    try (IbRanks ranks = new IbRanks(device)) {
      RegisteredMemory source = ranks.memory(0, SIZE);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, SIZE));
      List<Connection> links = new ArrayList<>();
      for (int tag = 0; tag < CONNECTIONS; tag++) {
        Connection link = ranks.connect(0, 1, tag, quick).get(0);
        link.write(remote, 0, source, 0, SIZE);
        ranks.await(link.flush(IbRanks.LIMIT));
        links.add(link);
      }

      run("ip", "link", "set", name, "down");

      List<CompletableFuture<Void>> flushes = new ArrayList<>();
      for (Connection link : links) {
        link.write(remote, 0, source, 0, SIZE);
        flushes.add(link.flush(IbRanks.LIMIT));
      }
      for (int tag = 0; tag < CONNECTIONS; tag++) {
        FluxCclException reason = IbFailureContract.failureOf(flushes.get(tag));
        // Not the deadline of the flush: the device has noticed it.
        assertThat(reason)
            .isInstanceOf(TransportFailure.class)
            .hasMessageContaining("rank 1 (tag " + tag + ")")
            .hasMessageContaining("IBV_WC_");
        assertThat(reason.rank()).isEqualTo(1);
        assertThat(links.get(tag).failure()).isSameAs(reason);
      }
    }
  }
}
