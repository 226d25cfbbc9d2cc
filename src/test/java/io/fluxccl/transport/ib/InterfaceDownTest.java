package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.testing.RequiresRdma;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/**
 * Takes the interface of IB0 down, which the property must name. The last of the tests: Soft-RoCE's
 * queue pair for connecting does not survive it.
 */
@RequiresRdma
@EnabledIfSystemProperty(named = "fluxccl.rdma.interface", matches = ".+")
@Timeout(240)
class InterfaceDownTest {
  private static final int CONNECTIONS = 20;

  @Test
  void shouldFailEveryConnectionInTimeWhenTheInterfaceIsTakenDown() throws Exception {
    RdmaOptions quick = RdmaOptions.DEFAULT.withRetries(2, Duration.ofMillis(60));
    try (IbRanks ranks = new IbRanks()) {
      RegisteredMemory source = ranks.memory(0, 64 << 10);
      RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64 << 10));
      List<Connection> links = new ArrayList<>();
      for (int tag = 0; tag < CONNECTIONS; tag++) {
        links.add(ranks.connect(0, 1, tag, quick).get(0));
      }

      ip("link", "set", System.getProperty("fluxccl.rdma.interface"), "down");

      List<CompletableFuture<Void>> flushes = new ArrayList<>();
      for (Connection link : links) {
        link.write(remote, 0, source, 0, 64 << 10);
        flushes.add(link.flush(IbRanks.LIMIT));
      }
      for (int tag = 0; tag < CONNECTIONS; tag++) {
        FluxCclException reason = IbFailureTest.failureOf(flushes.get(tag));
        assertThat(reason)
            .isInstanceOf(TransportFailure.class)
            .hasMessageContaining("rank 1 (tag " + tag + ")")
            .hasMessageContaining("IBV_WC_");
        assertThat(reason.rank()).isEqualTo(1);
        assertThat(links.get(tag).failure()).isSameAs(reason);
      }
    }
  }

  private static void ip(String... arguments) throws Exception {
    List<String> command = new ArrayList<>(List.of("ip"));
    command.addAll(List.of(arguments));
    Process process = new ProcessBuilder(command).inheritIO().start();
    assertThat(process.waitFor(30, TimeUnit.SECONDS)).isTrue();
    assertThat(process.exitValue()).isZero();
  }
}
