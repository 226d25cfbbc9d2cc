// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.testing.TestJvms.run;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.Transfer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/**
 * Makes Soft-RoCE devices, on interfaces without an IP address or that it takes down; runs only on
 * a machine that the property marks as a test guest. Does not delete the devices, because deleting
 * them would wait for this process.
 */
@RequiresRdma
@EnabledIfSystemProperty(named = "fluxccl.rdma.guest", matches = "true")
@Timeout(400)
class SoftRoceTest {
  private static final int ROUNDS = Integer.getInteger("fluxccl.rdma.downs", 3);
  private static final int CONNECTIONS = 4;
  private static final int SIZE = 64 << 10;

  @Test
  void shouldConnectByTheGidThatIsMadeFromTheMacAddress() throws Exception {
    run("ip", "link", "add", "bare0", "type", "dummy");
    run("ip", "link", "set", "bare0", "up");
    run("rdma", "link", "add", "rxe90", "type", "rxe", "netdev", "bare0");
    RdmaDevices.Device device = await("rxe90");
    assertThat(device.gids()).extracting(Gid::kind).containsOnly(Gid.Kind.ROCE_V2_LINK_LOCAL);
    try (IbRanks ranks = new IbRanks(device)) {
      ranks.exchange(100_000);
    }
  }

  @Test
  void shouldFailOnlyConnectionsOfAnInterfaceThatIsTakenDown() throws Exception {
    try (IbRanks others = new IbRanks()) {
      Transfer living = others.transfer(0, SIZE);
      for (int round = 0; round < ROUNDS; round++) {
        String name = "down" + round;
        String address = "10.9." + (100 + round) + ".1";
        run("ip", "link", "add", name, "type", "dummy");
        run("ip", "addr", "add", address + "/24", "dev", name);
        run("ip", "link", "set", name, "up");
        String device = "rxe" + (100 + round);
        run("rdma", "link", "add", device, "type", "rxe", "netdev", name);

        takeDown(name, await(device));
        living.write(round, 0, SIZE - round).flush();
        living.assertWritten(round, 0, SIZE - round);
      }
    }
  }

  private static void takeDown(String name, RdmaDevices.Device device) throws Exception {
    RdmaOptions quick = RdmaOptions.DEFAULT.withRetries(2, Duration.ofMillis(60));
    try (IbRanks ranks = new IbRanks(device)) {
      List<Transfer> transfers = new ArrayList<>();
      for (int tag = 0; tag < CONNECTIONS; tag++) {
        transfers.add(ranks.transfer(ranks.connect(tag, quick), 0, SIZE));
        transfers.get(tag).check();
      }
      run("ip", "link", "set", name, "down");
      List<CompletableFuture<Void>> flushes =
          transfers.stream().map(transfer -> transfer.write().flushing()).toList();
      for (int tag = 0; tag < CONNECTIONS; tag++) {
        FluxCclException reason = failureOf(flushes.get(tag));
        // Not the deadline of the flush: the device has noticed it.
        assertFailureOf(1, TransportFailure.class, reason, "rank 1 (tag " + tag + ")", "IBV_WC_");
        assertThat(transfers.get(tag).link().failure()).isSameAs(reason);
      }
    }
  }

  /** Returns a device once it has a link and an address. */
  private static RdmaDevices.Device await(String name) {
    Awaitility.await()
        .atMost(Duration.ofSeconds(60))
        .until(() -> find(name) != null && find(name).active() && !find(name).gids().isEmpty());
    return find(name);
  }

  private static RdmaDevices.Device find(String name) {
    return RdmaDevices.ofThisMachine().stream()
        .filter(device -> device.name().equals(name))
        .findFirst()
        .orElse(null);
  }
}
